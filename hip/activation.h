// Activations of the model, over the hardware's exponential and reciprocal.
//
// Owns: their formulas. Always true: no argument overflows: e^-x becomes infinite and its reciprocal zero.
// Not here: the router's softmax, which has the CPU's bits (moe_route.hip).
#pragma once
#include "dialect/gpu.h"

DEV float sigmoid(float x) { return rcp_(1.f + exp_(-x)); }
DEV float silu(float x) { return x * sigmoid(x); }
