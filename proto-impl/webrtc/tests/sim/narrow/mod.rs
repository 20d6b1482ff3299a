//! Simulations of paths with less capacity than a stream, in virtual time: the sent data, the estimate, and the
//! received media.

mod cell;
mod table;
