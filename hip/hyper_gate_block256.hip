// Hyper-connections' gated read (hyper_gate.h): formats with blocks of 256.
#include "hyper_gate.h"

HYPER_GATE_FORMAT(q2_k, Q2KFormat)
HYPER_GATE_FORMAT(q3_k, Q3KFormat)
HYPER_GATE_FORMAT(q4_k, Q4KFormat)
HYPER_GATE_FORMAT(q5_k, Q5KFormat)
HYPER_GATE_FORMAT(q6_k, Q6KFormat)
HYPER_GATE_FORMAT(iq4_xs, Iq4XsFormat)
