// Products with few rows (gemv.h): formats without codes.
#include "gemv.h"

GEMV_ROWS(f32, F32Format)
GEMV_ROWS(f16, F16Format)
GEMV_ROWS(bf16, Bf16Format)
GEMV_ROWS(fp8, Fp8Format)
