//! Settings: two `.properties` files, the environment and `--set`, assembled into the settings of each module.
//!
//! Keys of the reference server are known by name and kept on a round trip even where nothing reads them yet, so
//! that an existing file stays valid. Bad values are errors before anything is started (docs/robustness.md, C-01, C-03).

mod app;
mod cluster;
mod home;
mod keys;
mod known;
mod members;
mod notices;
mod order;
mod page;
pub mod properties;
mod recording;
mod remarks;
mod schema;
mod security;
mod server;
mod suggestion;
#[cfg(test)]
mod tests;
mod values;
mod visibility;
mod vod;

pub use app::{AcceptLimits, AppLimits, AppSettings};
pub use cluster::{ClusterSettings, WithoutDirectory};
pub use home::{
    APPS_MAX, Adopted, Adoption, Config, Edit, LostApp, Options, create_app, delete_app, edit_app,
    edit_server, is_app_name, read_foreign,
};
pub use keys::{Effect, Key};
pub(crate) use keys::{explicit, foreign, key, secret};
pub use known::remember;
pub use members::{Member, Shape};
pub use properties::Property;
pub use recording::RecordingSettings;
pub use schema::{Extensions, Level, Schema, Section};
pub use security::{HookSettings, SecuritySettings};
pub use server::{BackupSettings, Limits, LogSettings, ServerSettings};
pub use values::{Origin, Values};
pub use visibility::Visibility;
pub use vod::{Forwarding, S3Keys, S3Settings, VodSettings};

/// The reason the settings cannot be used. Always one line, naming the origin and the key; never a
/// secret value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A file is not in the `.properties` format.
    #[error("{file}, line {line}: {reason}")]
    Syntax {
        /// The file.
        file: String,
        /// Counted from 1; 0 when no line is to blame.
        line: usize,
        /// The reason.
        reason: String,
    },
    /// A value does not fit its key.
    #[error("{key} (from {origin}): {reason}")]
    Value {
        /// The file, `the environment`, `--set` or `the default`.
        origin: String,
        /// The key.
        key: String,
        /// The reason.
        reason: String,
    },
    /// A value asks for a protection that this server does not have.
    #[error("{key} (from {origin}): {reason}")]
    Unprotected {
        /// As of [`Self::Value`].
        origin: String,
        /// The key.
        key: &'static str,
        /// The reason.
        reason: &'static str,
    },
    /// An argument of `--set` is not `KEY=VALUE`.
    #[error("--set {argument}: {reason}")]
    Argument {
        /// The argument up to its `=`.
        argument: String,
        /// The reason.
        reason: String,
    },
    /// A variable of the environment is no setting.
    #[error("the environment: {name}: {reason}")]
    Variable {
        /// The variable.
        name: String,
        /// The reason.
        reason: String,
    },
    /// A settings file is empty, damaged or missing, although the home has had it.
    #[error(
        "{path}: {reason}; put it back from a copy, or, to begin with defaults, write one setting into it"
    )]
    Lost {
        /// The file.
        path: String,
        /// Its damage.
        reason: String,
    },
    /// A file or directory cannot be read or made.
    #[error("{path}: {reason}")]
    Io {
        /// The path.
        path: String,
        /// The error of the operating system.
        reason: String,
    },
}
