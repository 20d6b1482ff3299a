//! The only room with sockets, system calls, threads and clocks. It drives the machines: [`shell`] a worker each,
//! `office` the one control, `helpers` what may block.

mod budget;
mod clock;
mod disk;
mod doorbell;
mod helpers;
mod listen;
pub mod log;
mod office;
mod server;
mod shell;
mod sys;

pub use server::{Addresses, Notice, Server, StartError, StopReason};
