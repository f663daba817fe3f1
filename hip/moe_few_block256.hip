// Experts' products for at most eight rows (moe_few.h): formats with blocks of 256.
#include "moe_few.h"

MOE_FEW_FORMAT(q2_k, Q2KFormat)
MOE_FEW_FORMAT(q3_k, Q3KFormat)
MOE_FEW_FORMAT(q4_k, Q4KFormat)
MOE_FEW_FORMAT(q5_k, Q5KFormat)
MOE_FEW_FORMAT(q6_k, Q6KFormat)
MOE_FEW_FORMAT(iq4_xs, Iq4XsFormat)
