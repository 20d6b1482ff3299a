//! Paths that carry less than a stream has, in virtual time: what is sent, what the estimate says, what comes.

mod cell;
mod table;
