// Products with few rows (gemv.h): formats with blocks of 32.
#include "gemv.h"

GEMV_ROWS(q8_0, Q8_0Format)
GEMV_ROWS(q4_0, Q4_0Format)
GEMV_ROWS(q4_1, Q4_1Format)
GEMV_ROWS(q5_0, Q5_0Format)
GEMV_ROWS(q5_1, Q5_1Format)
GEMV_ROWS(iq4_nl, Iq4NlFormat)
