//! For tests: a start of time, an owner that accepts or not, and a line between two machines.
