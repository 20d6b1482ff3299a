//! Two connections over links that misbehave, in virtual time.

mod basic;
mod harness;
mod loss;
