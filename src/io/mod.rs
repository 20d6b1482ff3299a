//! The only room with sockets, system calls, threads and clocks. It drives the machines: [`shell`] a worker each,
//! `office` the one control, `helpers` what may block.

mod budget;
mod clock;
mod disk;
mod doorbell;
mod helpers;
mod hooks;
mod linger;
mod listen;
pub mod load;
pub mod log;
mod log_limit;
mod office;
mod server;
mod shell;
mod sys;
mod tls;

pub use tls::{CertificateError, CertificateFiles};

pub use server::{Addresses, Notice, Server, StartError, StopReason};
