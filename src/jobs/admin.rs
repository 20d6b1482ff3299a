//! Administrative work on the disk, outside the store: settings files, folders of applications, the log, certificates.
//! Jobs run one at a time.

use std::fmt;
use std::sync::Arc;

use bytes::Bytes;

use crate::config::{AppSettings, Config, Edit, ServerSettings};

/// An administrative operation.
#[derive(Clone, PartialEq, Eq)]
pub enum AdminWork {
    /// Create an application.
    CreateApp(Arc<str>),
    /// Delete an application's folder.
    DeleteApp(Arc<str>),
    /// Change an application's settings file.
    EditApp(Arc<str>, Edit),
    /// Change the server's settings file.
    EditServer(Edit),
    /// Read all settings again.
    Reload,
    /// Count the bytes of the folders of these applications.
    Storage(Vec<Arc<str>>),
    /// Read a part of the log.
    ReadLog {
        /// Start of the part; negative: the last part, counted back from the end.
        offset: i64,
        /// Maximum bytes to read.
        size: usize,
        /// True to read only the log of errors.
        errors: bool,
    },
    /// Write the certificate's files, if they match each other.
    Certificate {
        /// The certificate and its chain up to the root.
        full_chain: Bytes,
        /// The chain to the root certificate.
        chain: Bytes,
        /// The certificate's private key.
        key: Bytes,
    },
}

/// Prints only the kind of work, because settings and keys are secret.
impl fmt::Debug for AdminWork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::CreateApp(_) => "CreateApp(..)",
            Self::DeleteApp(_) => "DeleteApp(..)",
            Self::EditApp(..) => "EditApp(..)",
            Self::EditServer(_) => "EditServer(..)",
            Self::Reload => "Reload",
            Self::Storage(_) => "Storage(..)",
            Self::ReadLog { .. } => "ReadLog { .. }",
            Self::Certificate { .. } => "Certificate { .. }",
        })
    }
}

/// The outcome of [`AdminWork`].
#[derive(Debug, Clone)]
pub enum AdminOutcome {
    /// Settings of an application, created or changed.
    App(Box<AppSettings>),
    /// Settings of the server.
    Server(Box<ServerSettings>),
    /// The whole configuration.
    Config(Box<Config>),
    /// Folder sizes in bytes, in the order of the request; -1 where counting failed.
    Storage(Vec<i64>),
    /// A part of the log, and the size of the whole log. `None` if there is no log.
    Log(Option<(String, u64)>),
    /// Success without a result.
    Done,
    /// A failure, with a one-line reason.
    Failed(String),
}

impl AdminOutcome {
    fn reason(self) -> String {
        if let Self::Failed(reason) = self { reason } else { "the answer to something else".to_owned() }
    }

    /// Returns the settings of an application.
    ///
    /// # Errors
    /// The reason for the failure.
    pub fn app(self) -> Result<AppSettings, String> {
        if let Self::App(app) = self { Ok(*app) } else { Err(self.reason()) }
    }

    /// Returns the settings of the server.
    ///
    /// # Errors
    /// The reason for the failure.
    pub fn server(self) -> Result<ServerSettings, String> {
        if let Self::Server(server) = self { Ok(*server) } else { Err(self.reason()) }
    }

    /// Returns the configuration.
    ///
    /// # Errors
    /// The reason for the failure.
    pub fn config(self) -> Result<Config, String> {
        if let Self::Config(config) = self { Ok(*config) } else { Err(self.reason()) }
    }

    /// Returns the part of the log.
    ///
    /// # Errors
    /// The reason for the failure.
    pub fn log(self) -> Result<Option<(String, u64)>, String> {
        if let Self::Log(part) = self { Ok(part) } else { Err(self.reason()) }
    }

    /// Checks for success.
    ///
    /// # Errors
    /// The reason for the failure.
    pub fn done(self) -> Result<(), String> {
        if matches!(self, Self::Done) { Ok(()) } else { Err(self.reason()) }
    }
}
