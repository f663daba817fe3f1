// Experts' products for at most eight rows (moe_few.h): formats with blocks of 32.
#include "moe_few.h"

MOE_FEW_FORMAT(q8_0, Q8_0Format)
MOE_FEW_FORMAT(q4_0, Q4_0Format)
MOE_FEW_FORMAT(q4_1, Q4_1Format)
MOE_FEW_FORMAT(q5_0, Q5_0Format)
MOE_FEW_FORMAT(q5_1, Q5_1Format)
MOE_FEW_FORMAT(iq4_nl, Iq4NlFormat)
