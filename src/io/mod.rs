//! The only room with sockets, system calls, threads and clocks. It drives the machines: [`shell`] a worker each,
//! `office` the one control, `helpers`, `hashes`, `clerk` and `host` what may block.

mod budget;
mod clerk;
mod clock;
mod disk;
mod doorbell;
pub mod hashes;
mod helpers;
mod hooks;
mod host;
mod linger;
mod listen;
pub mod load;
mod local;
pub mod log;
mod log_limit;
mod office;
mod server;
mod shell;
mod sys;
mod tls;
mod udp;

pub use local::{AddUserError, add_user};
pub use tls::{CertificateError, CertificateFiles};

pub use server::{Notice, Server, StartError, StopReason};
