//! Control: the authority over records, live streams, pushes, pulls and the REST API. Control is one state machine, run
//! by one thread. The machine owns no clock, no socket and no thread, and its maps are sorted by key, so that the same
//! inputs give the same outputs.
//!
//! 1. Workers send mail ([`ToControl`]): publish requests, departures, reports, news of pushes, API requests.
//! 2. Admission (`registry`) decides on publish requests. When a publisher is admitted, every worker is informed of the
//!    stream before the publisher gets its grant.
//! 3. The API (`rest`) reads memory. Changes are gathered and committed by the store's thread. Then they become
//!    visible, and the requests for them are answered (`writes`).
//! 4. The `supervisor` of pushes (`endpoints`) and pulls (`sources`) resolves names, checks addresses, and times the
//!    attempts, which continue until the owner stops them.

mod acceptance;
mod access;
mod admission;
mod answer;
mod audience;
mod audit;
mod backups;
pub mod broadcast;
mod cluster;
mod connections;
mod context;
mod copies;
mod doors;
mod endpoints;
mod feeds;
mod folders;
mod from_json;
mod held;
mod held_back;
pub mod history;
mod hooks;
mod jobs;
mod json_text;
mod key_sets;
mod leaving;
mod live;
mod lookups;
mod management;
mod mask;
mod metrics;
mod names;
mod objects;
mod orders;
mod outgoing;
mod own_pushes;
mod playlists;
mod purge;
mod questions;
mod recordings;
mod records;
mod redirects;
mod registry;
mod reload;
mod removals;
mod repeats;
mod rest;
mod room_views;
mod shares;
mod site;
mod sources;
mod standby;
mod stats;
mod subtracks;
mod supervisor;
mod uploads;
mod viewer_counts;
mod wanted;
mod writes;

#[cfg(test)]
mod tests;

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Instant;

use crypto::Seed;

use crate::auth::OutboundPolicy;
use crate::config::{AppSettings, ServerSettings};
use crate::jobs::Job;
use crate::mail::{StreamEnd, ToControl, ToWorker};
use crate::protocol::{self, Addresses};
use crate::stats::{HostFigures, JobCounts};
use crate::types::{Now, SessionRef, StreamKey, WorkerId};
use crate::{directory, store};

use access::{Access, Sweep};
use answer::Origin;
use audit::Audit;
use backups::Backups;
use broadcast::{Broadcast, status};
use cluster::Cluster;
use context::{Context, Drain};
use endpoints::Pushes;
use feeds::Question;
use hooks::Hooks;
use jobs::Outbox;
use live::Registry;
use lookups::Lookups;
use management::Management;
use mask::Requester;
use names::Names;
use objects::Objects;
use purge::AppChanges;
use questions::SocketQuestion;
use recordings::Recordings;
use records::Records;
use records::restored::StoredRecord;
use registry::Departed;
use repeats::Repeats;
use rest::scan::Scans;
use sources::Sources;
use stats::{Figures, Load};
use supervisor::Supervisor;
use uploads::Uploads;

pub use admission::Ticket;
pub use audit::{ADDS_USER, AUDIT};
pub use cluster::{Location, Membership};
pub use held::{Ordered, Standing};
pub use management::is_email;
pub use orders::Order;
pub use records::auxiliary::{StoredRecords, administrator_record, found_recording};
pub use records::imported::{ImportedRecord, NotImported, imported_key, imported_record};
pub use records::restored::{BadRecord, RestoreError, Restored};
pub use rest::{Base, BodyKind, Policy, Route, routes};

/// The start parameters of control.
#[derive(Debug, Clone)]
pub struct ControlConfig {
    /// The server's settings.
    pub server: Arc<ServerSettings>,
    /// The applications.
    pub apps: Vec<Arc<AppSettings>>,
    /// Applications that are not started because their settings were lost.
    pub lost: BTreeSet<Arc<str>>,
    /// The number of workers.
    pub workers: u16,
    /// Random name of this node. Its pushes carry it in `via`, the list of servers that a stream has passed, by which
    /// loops are detected.
    pub node: String,
    /// The address of this machine as seen by others: the value of `originAdress`, and the host in `rtmpURL` if
    /// `server.name` is not set.
    pub host_address: String,
    /// The policy for pushes and pulls, which also knows this server's own addresses.
    pub outbound: OutboundPolicy,
    /// The addresses to which the server's listeners and ports are bound.
    pub addresses: Addresses,
    /// A secret drawn at the server's start, from which workers derive others, for example those of the credentials
    /// that they give to clients of TURN; `None` in tests.
    pub secret: Option<Seed>,
    /// Membership of this node in a cluster; `None` for a single server.
    pub cluster: Option<Membership>,
}

/// An action that control asks its shell, the code that drives it, to take.
#[derive(Debug)]
pub enum Output {
    /// Post mail to a worker.
    Worker(WorkerId, ToWorker),
    /// Pass a request to the store's thread.
    Store(store::Request),
    /// Pass a request to the directory's thread.
    Directory(directory::Request),
    /// Submit to the job service; answered by [`Control::handle_job`].
    Job(Job),
    /// Set the policy on addresses that hooks may connect to.
    Outbound(OutboundPolicy),
    /// The last sessions have ended, or the drain's time limit is over: shut the server down.
    Leave,
    /// The shutdown is complete: everything is closed and flushed. This is the last output.
    Exit,
}

/// Playable files of applications: how they are made, kept and removed.
#[derive(Debug, Default)]
struct Files {
    recordings: Recordings,
    uploads: Uploads,
    objects: Objects,
}

/// The state machine of control; see the module.
#[derive(Debug)]
pub struct Control {
    cx: Context,
    records: Records,
    walks: Walks,
    registry: Registry,
    outbound: Outbound,
    files: Files,
    access: Access,
    hooks: Hooks,
    management: Management,
    figures: Figures,
}

/// Outgoing connections and their supervision.
#[derive(Debug, Default)]
struct Outbound {
    supervisor: Supervisor,
    /// Attempts that failed before a worker was ordered to make them, with the reason.
    failed: VecDeque<(supervisor::Job, u64, String)>,
    pushes: Pushes,
    sources: Sources,
    names: Names,
    repeats: Repeats,
}

/// Background work on many records, done in slices or on copies of the records.
#[derive(Debug, Default)]
struct Walks {
    scans: Scans,
    sweep: Sweep,
    app_changes: AppChanges,
    backups: Backups,
}

impl ControlConfig {
    /// Makes the parameters of a single server, for simulations and benches: one worker, no listeners, no outbound
    /// policy, no secret. Callers change what they need.
    #[must_use]
    pub fn alone(server: ServerSettings, apps: Vec<Arc<AppSettings>>) -> Self {
        Self {
            server: Arc::new(server),
            apps,
            lost: BTreeSet::new(),
            workers: 1,
            node: "alone".to_owned(),
            host_address: "127.0.0.1".to_owned(),
            outbound: OutboundPolicy::default(),
            addresses: Addresses::of(&[]),
            secret: None,
            cluster: None,
        }
    }

    /// Returns the URL to which an encoder publishes this stream.
    fn publish_url(&self, key: &StreamKey) -> String {
        let name = self.server.name();
        // A listener that is bound to one address is reachable only at that address.
        let bound = protocol::publish_address(&self.addresses).filter(|ip| !ip.is_unspecified());
        let host = match bound {
            Some(address) if name.is_empty() => address.to_string(),
            Some(_) | None if name.is_empty() => self.host_address.clone(),
            Some(_) | None => name.to_owned(),
        };
        let host = if host.contains(':') && !host.starts_with('[') { format!("[{host}]") } else { host };
        protocol::publish_url(&host, &self.addresses, key)
    }
}

impl Records {
    fn take_over_broadcast(
        &mut self,
        now: Now,
        config: &ControlConfig,
        key: StreamKey,
        mut record: Broadcast,
    ) {
        if config.cluster.as_ref().is_some_and(|cluster| cluster.has_elsewhere(&key)) {
            self.insert(key.clone(), record);
            return self.note_elsewhere(now, &key, true);
        }
        let is_live = record.status == status::BROADCASTING || record.status == status::PREPARING;
        if (record.zombi || is_live)
            && config.cluster.as_ref().is_some_and(|cluster| cluster.may_wait_elsewhere(&key))
        {
            self.insert(key.clone(), record);
            return self.note_elsewhere(now, &key, false);
        }
        if record.zombi {
            self.writes.mark_dirty(now, key);
            return;
        }
        let mut changed = false;
        if is_live {
            status::FINISHED.clone_into(&mut record.status);
            changed = true;
        }
        for endpoint in record.end_point_list.iter_mut().flatten() {
            if endpoint.status != status::CREATED && endpoint.status != status::FINISHED {
                status::FINISHED.clone_into(&mut endpoint.status);
                changed = true;
            }
        }
        changed |= record.forget_viewers();
        if record.origin_adress.is_empty() && !config.host_address.is_empty() {
            // The record was imported and contains no server's address yet, so this server's address is filled in.
            record.origin_adress.clone_from(&config.host_address);
            record.origin_address.clone_from(&config.host_address);
            record.rtmp_url = config.publish_url(&key);
            changed = true;
        }
        self.insert(key.clone(), record);
        if changed {
            self.writes.mark_dirty(now, key);
        }
    }
}

impl Control {
    /// Returns the outbound policy, for threads that connect on control's behalf.
    #[must_use]
    pub fn outbound_policy(&self) -> OutboundPolicy {
        self.cx.config.outbound.clone()
    }

    /// Restores the stored records. Streams that were live when the server stopped become `finished`
    /// (docs/robustness.md B-11), and records made only by publishing are removed. Posts every application to every
    /// worker.
    ///
    /// # Errors
    /// The first stored record that could not be read.
    pub fn new(
        now: Now,
        config: ControlConfig,
        stored: impl IntoIterator<Item = Result<Restored, RestoreError>>,
        seed: &Seed,
    ) -> Result<Self, RestoreError> {
        let apps = config.apps.iter().map(|app| (app.name.clone(), app.clone())).collect();
        let random = seed.derive("control", 0).random();
        let load = Load::new(config.workers);
        let (audit, outbox) = (Audit::default(), Outbox::default());
        let lookups = Lookups::default();
        let pair = config.cluster.as_ref().filter(|cluster| cluster.is_pair);
        let side = pair.map(|_| directory::Side::Keeper);
        let (leaving, drain) = (None, None);
        let cx = Context { config, apps, random, load, audit, outbox, leaving, drain, side, lookups };
        let mut control = Self {
            records: Records::default(),
            walks: Walks::default(),
            registry: Registry::new(Cluster::new(cx.config.cluster.clone())),
            outbound: Outbound::default(),
            files: Files::default(),
            access: Access::default(),
            hooks: Hooks::default(),
            management: Management::default(),
            figures: Figures::new(now),
            cx,
        };
        if let Some(cluster) = &control.cx.config.cluster {
            match cluster.is_pair {
                true => control.records.writes.pair(),
                false => control.records.writes.share(cluster.node.clone()),
            }
        }
        for part in stored {
            control.walks.take_over(&control.cx, &mut control.records, now, part?);
        }
        control.cx.follow_lookups(now);
        control.cx.post_settings();
        for app in control.cx.config.apps.clone() {
            control.cx.post_all(&ToWorker::App(app));
        }
        control.management.log_doors(&mut control.cx, &control.records);
        control.outgoing(now).boot_sources();
        control.files.boot_recordings(&mut control.cx, &mut control.records, &control.registry.cluster, now);
        control.files.boot_objects(&control.records, &control.registry.cluster, now);
        control.walks.boot_backups(&control.cx, &control.registry.cluster, now);
        control.access.follow_key_sets(&control.cx, now);
        control.end_turn(now);
        Ok(control)
    }

    /// Handles mail from a worker.
    pub fn handle_mail(&mut self, now: Now, mail: ToControl) {
        self.cx.audit.note_time(now.mono);
        match mail {
            ToControl::Publish(request) => self.publish(now, request),
            ToControl::PublishAbandoned(session) => self.publish_abandoned(now, session),
            ToControl::PublisherGone { session, stream, departure, position, tracks } => {
                let departed = Departed { session, stream, departure, position, tracks };
                self.registry.publisher_gone(&mut self.cx, &mut self.records, now, departed);
            }
            ToControl::Yielded { session, stream, seam } => {
                self.registry.yielded(&mut self.cx, &mut self.records, now, (session, stream), seam)
            }
            ToControl::StandbySends { session, stream, sends } => {
                let standby = (session, stream);
                self.registry.standby_sends(&mut self.cx, &self.records, now, standby, sends)
            }
            ToControl::SourceStarted(stream) => {
                self.hooks.source_started(&mut self.cx, &self.records, &mut self.registry, now, stream)
            }
            ToControl::Play(request) => self.admit_viewer(now, *request),
            ToControl::Leased(news) => self.hooks.viewer_leased(&mut self.cx, &self.records, now, &news),
            ToControl::PlayStarted { session, request } => {
                self.access.play_started(&mut self.cx, &self.records, &mut self.hooks, now, session, request)
            }
            ToControl::PlayEnded(session) => {
                // A viewer whose admission is still pending withdraws its request. Any other viewer leaves its stream.
                let cluster = &mut self.registry.cluster;
                if !self.access.abandon_admission(&mut self.cx, cluster, now, session) {
                    self.access.leave(&mut self.cx, &self.records, &mut self.hooks, now, session);
                }
            }
            ToControl::Rest { session, peer, secure, request } => {
                self.rest(now, Origin { requester: Requester::unknown(session), peer, secure }, &request);
            }
            ToControl::Feed { session, peer, secure, request } => {
                let origin = Origin { requester: Requester::unknown(session), peer, secure };
                let question = Question { origin, request };
                let refused = self.access.feed_asked(&mut self.cx, &mut self.management, now, question);
                refused.into_iter().for_each(|question| self.rest(now, question.origin, &question.request));
            }
            ToControl::Locate { session, sought } => {
                let response = redirects::locate(&self.registry, &self.records, &self.files, &sought);
                self.cx.answer(Requester::unknown(session), response);
            }
            ToControl::NodeCall { session, call } => rest::node_call(self, now, session, *call),
            ToControl::Ask { session, peer, key, let_in, question } => {
                let live = self.registry.count(&key.app);
                let asked = SocketQuestion { session, key, let_in, question, live, is_refused: false };
                if let Some(asked) = self.access.question_asked(now, peer, asked) {
                    let response = rest::answer(self, now, &asked);
                    self.cx.answer(Requester::unknown(session), response);
                }
            }
            ToControl::Describe { key, meta_data } => {
                self.registry.describe(&mut self.records, now, key, meta_data)
            }
            ToControl::Data { sender, key, payload } => {
                self.hooks.hook_data(&mut self.cx, now, (&key, sender), payload)
            }
            ToControl::Call { session, peer, event } => self.call_event(now, session, peer, event),
            ToControl::Report(worker, report) => self.report(now, worker, &report),
            ToControl::Measured(worker, figures) => self.measured(worker, *figures),
            ToControl::Connections { worker, stream, connections, viewers } => {
                self.figures.connections_told(&mut self.cx, now, worker, stream, (connections, viewers));
            }
            ToControl::Push { push, attempt, state } => self.push_news(now, push, attempt, state),
            ToControl::PushOpened { push, local } => self.outbound.push_opened(now, push, local),
            ToControl::Pull { pull, attempt, state } => self.outgoing(now).pull_news((pull, attempt), state),
            ToControl::Sink { stream, kind, news } => {
                self.registry.sink_news(&mut self.cx, stream, kind, news)
            }
            ToControl::Recording { recording, news } => self.recording_news(now, recording, news),
            ToControl::Upload { session, news } => {
                self.files.upload_news(&mut self.cx, &self.records, now, session, news)
            }
            ToControl::NextServer { pull, attempt, server } => {
                self.outgoing(now).next_server((pull, attempt), server)
            }
            ToControl::Wanted { key, via } => self.outgoing(now).wanted(&key, via),
            ToControl::Drained(worker) => {
                if let Some(drain) = &mut self.cx.drain {
                    drain.waiting.remove(&worker);
                }
            }
        }
        self.end_turn(now);
    }

    /// Adds an administrator, as requested by the operator on the command line. The answer goes to `session`.
    pub fn add_user(&mut self, now: Now, session: SessionRef, email: &str, hash: String) {
        self.records.add_administrator(&mut self.cx, now, Requester::unknown(session), email, hash);
        self.end_turn(now);
    }

    /// Handles deadlines that have passed; early and repeated calls are harmless.
    pub fn handle_timeout(&mut self, now: Now) {
        self.cx.audit.note_time(now.mono);
        self.registry.end_overdue_graces(&mut self.cx, now);
        self.access.fire_admissions(&mut self.cx, &mut self.registry.cluster, now);
        self.outgoing(now).fire_attempts();
        if self.outbound.poll_tick(now) {
            self.outgoing(now).stop_idle_sources();
            // First process the streams that ended above, because a planned start may begin a new stream of the same
            // record.
            self.follow_ends(now);
            let mut outgoing = self.outgoing(now);
            outgoing.fire_planned();
            outgoing.begin_held_back();
        }
        self.outbound.fire_leaving(&mut self.cx, &mut self.registry, &self.access, now);
        self.records.handle_timeout(now);
        self.walks.fire_scans(&mut self.cx, &self.records, now);
        let walked = self.registry.len().saturating_add(self.files.recordings.len());
        for question in self.access.feeds.slice(now.mono, walked) {
            self.rest(now, question.origin, &question.request);
        }
        for asked in self.access.questions.slice(now.mono) {
            let response = rest::answer(self, now, &asked);
            self.cx.answer(Requester::unknown(asked.session), response);
        }
        self.walks.fire_sweep(&mut self.records, now);
        self.hooks.fire_idles(&mut self.cx, &self.records, &self.registry, now);
        self.hooks.fire_hooks(&mut self.cx, &mut self.outbound, now);
        self.management.fire_held(&mut self.cx, now);
        self.walks.fire_purges(&mut self.records, now);
        self.walks.fire_backups(&self.cx, &mut self.records, now);
        self.access.fire_key_sets(&mut self.cx, now);
        self.cx.fire_lookups(now);
        self.outbound.fire_repeats(now);
        self.recorder(now).fire_recordings();
        self.files.fire_objects(&mut self.cx, &self.records, now);
        self.end_turn(now);
    }

    /// Handles figures of the machine and of the job service, which arrive every few seconds. If memory use is above
    /// the limit, new publishers are refused.
    pub fn handle_host(&mut self, now: Now, figures: HostFigures, jobs: Vec<JobCounts>) {
        self.figures.jobs = jobs;
        self.cx.load.memory_percent = figures.memory_percent;
        self.figures.host = figures;
        self.figures.sample_server(&self.cx, &self.registry, now);
        self.files.remove_windows(&mut self.cx, now);
        let cpu = u8::try_from(self.cx.load.busy_permille(now) / 10).unwrap_or(100);
        self.registry.cluster.note_load(cpu, self.cx.load.memory_percent);
        self.end_turn(now);
    }

    /// Begins to shut down: no new sessions are admitted, workers close theirs, live broadcasts become `finished`, and
    /// the store is flushed. [`Output::Exit`] is the last output.
    pub fn drain(&mut self, now: Now) {
        if self.cx.drain.is_some() {
            return;
        }
        let waiting = (0..self.cx.config.workers).map(WorkerId).collect();
        self.cx.drain = Some(Drain { waiting, exited: false });
        self.access.end_admissions(&mut self.cx, &mut self.registry.cluster, now);
        self.outbound.forget_sources(&mut self.records, &self.registry, now);
        for stream in self.registry.streams() {
            self.registry.end(&mut self.cx, stream, StreamEnd::Drain);
        }
        self.follow_ends(now);
        self.hooks.drain(now);
        self.cx.post_all(&ToWorker::Drain);
        self.records.flush(now);
        self.end_turn(now);
    }

    /// Returns the next output. Requests to the store come before those to the directory: the store must have what it was
    /// given when it changes hands ([`crate::directory::Request::Paired`]).
    pub fn poll_output(&mut self) -> Option<Output> {
        let output = self.cx.outbox.outputs.pop_front();
        output.or_else(|| self.registry.cluster.poll_request().map(Output::Directory))
    }

    /// Returns the time at which [`Control::handle_timeout`] must be called.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        let deadlines = [
            self.registry.first_grace().map(|(until, _)| until),
            self.access.admissions.deadline(),
            self.outbound.supervisor.deadline(),
            self.outbound.sources.deadline(),
            self.cx.leaving_deadline(),
            self.outbound.repeats.deadline(),
            self.records.writes.deadline(),
            self.walks.scans.deadline(),
            self.walks.sweep.deadline(),
            self.hooks.deadline(),
            self.management.deadline(),
            self.walks.app_changes.deadline(),
            self.walks.backups.deadline(),
            self.access.key_sets.deadline(),
            self.cx.lookups.deadline(),
            self.access.feeds.deadline(),
            self.access.questions.deadline(),
            self.files.recordings.deadline(),
            self.files.objects.deadline(),
        ];
        deadlines.into_iter().flatten().min()
    }
}

impl Walks {
    fn take_over(&mut self, cx: &Context, records: &mut Records, now: Now, stored: Restored) {
        for (key, record) in stored.0 {
            match record {
                StoredRecord::Auxiliary(record) => {
                    self.arm_sweep(now);
                    records.auxiliary.insert(key, *record);
                }
                StoredRecord::Broadcast(record) => {
                    records.take_over_broadcast(
                        now,
                        &cx.config,
                        StreamKey { app: key.app, id: key.id },
                        *record,
                    );
                }
            }
        }
    }
}

impl Hooks {
    fn exit_when_drained(&self, cx: &mut Context, records: &Records) {
        let flushed = records.writes.is_flushed() && self.is_drained();
        if let Some(drain) = &mut cx.drain
            && drain.waiting.is_empty()
            && flushed
            && !drain.exited
        {
            drain.exited = true;
            cx.outbox.outputs.push_back(Output::Exit);
        }
    }
}

/// Returns the wall-clock time as stored in records.
fn wall(now: Now) -> i64 {
    now.wall_date()
}
