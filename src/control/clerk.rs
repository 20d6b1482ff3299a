//! What control has done on the disk beside the store: settings files, folders of applications, the log, certificates.
//! One thread does it, in order; control says what follows from the answer.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;

use super::{Control, Output};
use crate::config::{AppSettings, Config, Edit, ServerSettings};
use crate::http::Response;
use crate::types::{Now, SessionRef};

/// Errands that may wait; more are refused.
const ERRANDS_MAX: usize = 64;

/// What is to be done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Errand {
    /// Make an application.
    CreateApp(Arc<str>),
    /// Remove its folder.
    DeleteApp(Arc<str>),
    /// Change its settings file.
    EditApp(Arc<str>, Edit),
    /// Change the server's.
    EditServer(Edit),
    /// Read all settings again.
    Reload,
    /// Count the bytes of the folders of these applications.
    Storage(Vec<Arc<str>>),
    /// Read a part of the log.
    ReadLog {
        /// From where; negative: the end.
        offset: i64,
        /// Bytes at most.
        size: usize,
    },
    /// Write the files of the certificate, when they fit each other.
    Certificate {
        /// The certificate and what leads to its root.
        full_chain: Bytes,
        /// What leads to its root.
        chain: Bytes,
        /// Its key.
        key: Bytes,
    },
}

/// An errand.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ErrandRequest {
    /// Comes back in the answer.
    pub id: u64,
    /// What.
    pub errand: Errand,
}

/// How it went.
#[derive(Debug)]
pub enum ErrandResult {
    /// Settings of an application, made or changed.
    App(Box<AppSettings>),
    /// Settings of the server.
    Server(Box<ServerSettings>),
    /// All of them.
    Config(Box<Config>),
    /// Bytes, in the order of the question; -1 for what could not be counted.
    Storage(Vec<i64>),
    /// A part of the log, and the bytes of all of it. `None`: there is no log.
    Log(Option<(String, u64)>),
    /// Nothing else to say.
    Done,
    /// Why not, in one line.
    Failed(String),
}

impl ErrandResult {
    fn words(self) -> String {
        if let Self::Failed(words) = self { words } else { "the answer to something else".to_owned() }
    }

    /// Settings of an application, or why not.
    pub(super) fn app(self) -> Result<AppSettings, String> {
        if let Self::App(app) = self { Ok(*app) } else { Err(self.words()) }
    }

    /// Settings of the server, or why not.
    pub(super) fn server(self) -> Result<ServerSettings, String> {
        if let Self::Server(server) = self { Ok(*server) } else { Err(self.words()) }
    }

    /// All settings, or why not.
    pub(super) fn config(self) -> Result<Config, String> {
        if let Self::Config(config) = self { Ok(*config) } else { Err(self.words()) }
    }

    /// A part of the log, or why not.
    pub(super) fn log(self) -> Result<Option<(String, u64)>, String> {
        if let Self::Log(part) = self { Ok(part) } else { Err(self.words()) }
    }

    /// Nothing, or why not.
    pub(super) fn done(self) -> Result<(), String> {
        if matches!(self, Self::Done) { Ok(()) } else { Err(self.words()) }
    }
}

/// The answer to an errand.
#[derive(Debug)]
pub struct ErrandAnswer {
    /// Of which.
    pub id: u64,
    /// How it went.
    pub result: ErrandResult,
}

/// What follows from an answer.
pub(super) type Then = Box<dyn FnOnce(&mut Control, Now, ErrandResult) + Send>;

/// The errands under way.
#[derive(Default)]
pub(super) struct Errands {
    waiting: BTreeMap<u64, Then>,
    count: u64,
}

impl std::fmt::Debug for Errands {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Errands").field("waiting", &self.waiting.len()).finish()
    }
}

impl Control {
    /// Sends the clerk; false when too many errands wait.
    pub(super) fn send_clerk(
        &mut self,
        errand: Errand,
        then: impl FnOnce(&mut Self, Now, ErrandResult) + Send + 'static,
    ) -> bool {
        let errands = &mut self.errands;
        if errands.waiting.len() >= ERRANDS_MAX {
            return false;
        }
        errands.count += 1;
        errands.waiting.insert(errands.count, Box::new(then));
        self.outputs.push_back(Output::Errand(ErrandRequest { id: errands.count, errand }));
        true
    }

    /// Sends the clerk for a request of the API; what follows makes the answer.
    pub(super) fn ask_clerk(
        &mut self,
        session: SessionRef,
        errand: Errand,
        then: impl FnOnce(&mut Self, Now, ErrandResult) -> Response + Send + 'static,
    ) {
        let sent = self.send_clerk(errand, move |control, now, result| {
            let response = then(control, now, result);
            control.answer(session, response);
        });
        if !sent {
            self.answer(session, Response::error(503, "Too many requests wait").header("Retry-After", "1"));
        }
    }

    /// An errand is done.
    pub fn handle_errand(&mut self, now: Now, answer: ErrandAnswer) {
        if let Some(then) = self.errands.waiting.remove(&answer.id) {
            then(self, now, answer.result);
        }
    }
}
