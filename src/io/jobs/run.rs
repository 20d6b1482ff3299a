//! Runs the work of jobs of every kind.

use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use rustls::ClientConfig;
use ureq::Agent;

use super::pictures::Pictures;
use super::roles::Roles;
use super::{
    admin, archives, dvr, files, imports, key_files, names, nodes, objects, passwords, posts, recordings,
    relays, seen,
};
use crate::auth::OutboundPolicy;
use crate::config::Options;
use crate::io::clock;
use crate::io::tls::CertificateFiles;
use crate::jobs::{ArchiveWork, Outcome, READ_BYTES_MAX, Work};

/// The files and folders that jobs work on.
#[derive(Debug, Clone)]
pub(in crate::io) struct FilePaths {
    /// The sources of the settings.
    pub(in crate::io) options: Options,
    /// The files of the certificate.
    pub(in crate::io) certificate: CertificateFiles,
    /// The root folder for paths of files.
    pub(in crate::io) root: PathBuf,
    /// The folder that ACME clients use as their web root.
    pub(in crate::io) challenges: Option<PathBuf>,
    /// Folders that contain the folders that may be imported.
    pub(in crate::io) import_folders: Vec<PathBuf>,
}

#[cfg(test)]
impl FilePaths {
    /// Makes the paths with only a root folder.
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
    /// The agent for POSTs. It is made with the first request, because it reads the system's
    /// certificates.
    agent: OnceLock<Agent>,
    roles: Roles,
    pictures: Pictures,
    /// Bytes of streams that viewers can rewind, by application.
    dvr: dvr::Ledger,
    /// TLS settings for connections to other nodes.
    nodes: Arc<ClientConfig>,
}

impl Runner {
    pub(super) fn new(paths: FilePaths, policy: OutboundPolicy, nodes: Arc<ClientConfig>) -> Self {
        let policy = posts::policy(policy);
        Self {
            paths,
            policy,
            agent: OnceLock::new(),
            roles: Roles::default(),
            pictures: Pictures::default(),
            dvr: dvr::Ledger::default(),
            nodes,
        }
    }

    pub(super) fn policy(&self) -> posts::Policy {
        posts::Policy::clone(&self.policy)
    }

    fn agent(&self) -> &Agent {
        self.agent.get_or_init(|| posts::system_agent(posts::Policy::clone(&self.policy)))
    }

    /// Does the work, and blocks until it is done. `submitted` is the time at which the job was
    /// submitted.
    pub(super) fn run(&self, work: Work, submitted: Instant) -> Outcome {
        match work {
            Work::Resolve { host, port } => Outcome::Resolved(names::resolve(&host, port)),
            Work::FindSeen { server, port } => Outcome::Resolved(seen::seen(&server, port)),
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
            Work::KeyInfo { path } => Outcome::KeyInfo(key_files::read(&path)),
            Work::FileAppend { to, data } => Outcome::Appended(files::append(&self.paths.root, to, &data)),
            Work::FileSync { file } => Outcome::Synced(file.sync()),
            Work::Recording(work) => Outcome::Recording(recordings::run(&self.paths.root, &work)),
            Work::Archive(ArchiveWork::Dvr(work)) => {
                Outcome::Dvr(dvr::run(&self.paths.root, &self.dvr, &work))
            }
            Work::Archive(work) => Outcome::Archived(archives::run(&self.paths.root, &work)),
            Work::Relay(work) => Outcome::Relayed(relays::run(self.agent(), &work)),
            Work::Import(work) => Outcome::Import(imports::run(&self.paths, &work)),
            Work::Object(work) => {
                Outcome::Object(objects::run(self.agent(), &self.paths, &self.roles, &work))
            }
            Work::Node(work) => Outcome::Node(nodes::run(&self.nodes, &work)),
            Work::Picture(work) => Outcome::Picture(self.pictures.run(&work)),
            Work::Compute(work) => Outcome::Computed(work.run()),
        }
    }
}
