//! Two connections over links that misbehave, in virtual time.

mod basic;
mod harness;
mod hostile;
mod keys;
mod loss;
mod port;
