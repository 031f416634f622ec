// All kernels, as one program: one image an architecture.
#include "pack.cu"
#include "turn.cu"
#include "hash.cu"
#include "stats.cu"
