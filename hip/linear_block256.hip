// Products with few rows (gemv.h): formats with blocks of 256.
#include "gemv.h"

GEMV_ROWS(q2_k, Q2KFormat)
GEMV_ROWS(q3_k, Q3KFormat)
GEMV_ROWS(q4_k, Q4KFormat)
GEMV_ROWS(q5_k, Q5KFormat)
GEMV_ROWS(q6_k, Q6KFormat)
GEMV_ROWS(iq4_xs, Iq4XsFormat)
