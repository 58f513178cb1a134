// All of it is in prelude.h.
