// Hyper-connections' gated read (hyper_gate.h): formats with blocks of 32.
#include "hyper_gate.h"

HYPER_GATE_FORMAT(q8_0, Q8_0Format)
HYPER_GATE_FORMAT(q4_0, Q4_0Format)
HYPER_GATE_FORMAT(q4_1, Q4_1Format)
HYPER_GATE_FORMAT(q5_0, Q5_0Format)
HYPER_GATE_FORMAT(q5_1, Q5_1Format)
HYPER_GATE_FORMAT(iq4_nl, Iq4NlFormat)
