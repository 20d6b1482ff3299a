//! Does the work of a job, whichever it is.

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use rustls::ClientConfig;
use ureq::Agent;

use super::roles::Roles;
use super::{admin, archives, files, imports, names, nodes, objects, passwords, posts, recordings, relays};
use crate::auth::OutboundPolicy;
use crate::config::Options;
use crate::io::clock;
use crate::io::tls::CertificateFiles;
use crate::jobs::{Outcome, READ_BYTES_MAX, Work};

/// The files and folders that jobs work on.
#[derive(Debug, Clone)]
pub(in crate::io) struct FilePaths {
    /// The sources of the settings.
    pub(in crate::io) options: Options,
    /// The certificate's files.
    pub(in crate::io) certificate: CertificateFiles,
    /// The folder that paths of files begin at.
    pub(in crate::io) root: PathBuf,
    /// The folder that an ACME client takes for the root of the server's files.
    pub(in crate::io) challenges: Option<PathBuf>,
    /// Folders below which there may be folders that are imported.
    pub(in crate::io) import_folders: Vec<PathBuf>,
}

#[cfg(test)]
impl FilePaths {
    /// A root folder and nothing else.
    pub(super) fn of(root: PathBuf) -> Self {
        let none = PathBuf::new;
        let certificate = CertificateFiles { certificate: none(), chain: none(), key: none() };
        Self { options: Options::default(), certificate, root, challenges: None, import_folders: Vec::new() }
    }
}

/// The state that all threads of the service share.
#[derive(Debug)]
pub(in crate::io) struct Runner {
    paths: FilePaths,
    policy: posts::Policy,
    /// Made with the first request: the system's certificates are read for it.
    agent: OnceLock<Agent>,
    roles: Roles,
    /// For connections to other nodes.
    nodes: Arc<ClientConfig>,
}

impl Runner {
    pub(super) fn new(paths: FilePaths, policy: OutboundPolicy, nodes: Arc<ClientConfig>) -> Self {
        let policy = posts::policy(policy);
        Self { paths, policy, agent: OnceLock::new(), roles: Roles::default(), nodes }
    }

    pub(super) fn policy(&self) -> posts::Policy {
        posts::Policy::clone(&self.policy)
    }

    fn agent(&self) -> &Agent {
        self.agent.get_or_init(|| posts::system_agent(posts::Policy::clone(&self.policy)))
    }

    /// Blocks for as long as the work takes; `submitted` is when it was handed over.
    pub(super) fn run(&self, work: Work, submitted: Instant) -> Outcome {
        match work {
            Work::Resolve { host, port } => Outcome::Resolved(names::resolve(&host, port)),
            Work::Post(post) => {
                let waited = clock::now().mono.saturating_duration_since(submitted);
                Outcome::Posted(posts::post(self.agent(), &post, waited))
            }
            Work::Fetch { url } => Outcome::Fetched(posts::fetch(self.agent(), &url)),
            Work::Password(work) => Outcome::Password(passwords::run(&work)),
            Work::Admin(work) => Outcome::Admin(admin::run(&self.paths, work)),
            Work::FileOpen { path } => Outcome::Opened(files::open(&self.paths, &path)),
            Work::ChallengeOpen { token } => Outcome::Opened(files::open_challenge(&self.paths, &token)),
            Work::FileRead { file, offset, length } => {
                Outcome::Block(file.read_block(offset, length.min(READ_BYTES_MAX)))
            }
            Work::FileAppend { to, data } => Outcome::Appended(files::append(&self.paths.root, to, &data)),
            Work::FileSync { file } => Outcome::Synced(file.sync()),
            Work::Recording(work) => Outcome::Recording(recordings::run(&self.paths.root, &work)),
            Work::Archive(work) => Outcome::Archived(archives::run(&self.paths.root, &work)),
            Work::Relay(work) => Outcome::Relayed(relays::run(self.agent(), &work)),
            Work::Import(work) => Outcome::Import(imports::run(&self.paths, &work)),
            Work::Object(work) => {
                Outcome::Object(objects::run(self.agent(), &self.paths, &self.roles, &work))
            }
            Work::Node(work) => Outcome::Node(nodes::run(&self.nodes, &work)),
            Work::Compute(work) => Outcome::Computed(work.run()),
        }
    }
}
