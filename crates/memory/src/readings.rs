//! What processes and their containers use, as the kernel tells it.
