//! Simulations of paths with less capacity than a stream, in virtual time: data sent, estimates, and media
//! received.

mod cell;
mod table;
