//! Nothing of its own: it is built for the static library that its dependency leaves behind.
