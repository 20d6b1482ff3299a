//! The only module with sockets, system calls, threads and clocks. It drives the state machines: a [`shell`] drives
//! each worker, and `control_thread` drives control. `jobs` does blocking work, and `host` measures this machine.

mod blob_files;
mod budget;
mod clock;
mod control_thread;
mod directory;
mod driver;
mod free_memory;
mod host;
pub mod import_tool;
mod jobs;
mod linger;
mod listen;
pub mod load;
mod local;
pub mod log;
mod log_fields;
mod log_limit;
mod log_line;
mod mailbox;
mod notify;
mod preface;
pub mod preview_worker;
mod server;
mod shell;
pub mod store_tools;
mod sys;
mod tls;
mod udp;
mod upgrade;

pub use local::{AddUserError, add_user, order_drain, order_upgrade};
pub use notify::ServiceManager;
pub use tls::{CertificateError, CertificateFiles};

pub use upgrade::Successor;

pub use server::{Notice, Server, StartError, StopReason};
