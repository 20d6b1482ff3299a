//! Settings: two `.properties` files, the environment and `--set`, assembled into the settings of each module.
//!
//! Keys of Ant Media Server are known by name and preserved even if unused, so that an existing file stays valid.
//! Bad values are reported as errors before anything is started (docs/robustness.md, C-01, C-03).

mod app;
mod cluster;
pub(crate) mod group;
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

pub use app::{AcceptLimits, AppLimits, AppSettings, LossSettings};
pub use cluster::{ClusterSettings, WithoutDirectory};
pub use group::Group;
pub use home::{
    APPS_MAX, Adopted, Adoption, Config, Edit, LostApp, Options, StorePlace, create_app, delete_app,
    edit_app, edit_server, is_app_name, read_foreign,
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

/// Reasons why the settings are unusable. Each is one line that names the origin and the key, and never contains a
/// secret value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// A syntax error in a `.properties` file.
    #[error("{file}, line {line}: {reason}")]
    Syntax {
        /// Path of the file.
        file: String,
        /// Line number from 1; 0 if no line is at fault.
        line: usize,
        /// The reason.
        reason: String,
    },
    /// A value that does not fit its key.
    #[error("{key} (from {origin}): {reason}")]
    Value {
        /// Origin of the value: the file, `the environment`, `--set` or `the default`.
        origin: String,
        /// The key.
        key: String,
        /// The reason.
        reason: String,
    },
    /// An argument of `--set` other than `KEY=VALUE`.
    #[error("--set {argument}: {reason}")]
    Argument {
        /// Argument, up to its `=`.
        argument: String,
        /// The reason.
        reason: String,
    },
    /// An environment variable that is not a setting.
    #[error("the environment: {name}: {reason}")]
    Variable {
        /// Name of the variable.
        name: String,
        /// The reason.
        reason: String,
    },
    /// A settings file that is empty, damaged or missing, although the home has had it.
    #[error(
        "{path}: {reason}; put it back from a copy, or, to begin with defaults, write one setting into it"
    )]
    Lost {
        /// Path of the file.
        path: String,
        /// Kind of damage.
        reason: String,
    },
    /// A file or directory that cannot be read or created.
    #[error("{path}: {reason}")]
    Io {
        /// Path of the file or directory.
        path: String,
        /// Error of the operating system.
        reason: String,
    },
}
