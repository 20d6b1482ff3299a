//! Drives the workers: their mail, their turns, and their outputs.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use millstream::hub::MirroredUnit;
use millstream::jobs::{AppendError, AppendFile, AppendTo, Appended, FileError, JobDone, Outcome, Work};
use millstream::mail::ToWorker;
use millstream::protocol::{Listener, PathEvent, PathId, PathNews};
use millstream::types::ConnId;
use millstream::worker::{Output, Way, Writers};
use wire::{Datagrams, Gather};

use super::backstage::ControlMail;
use super::network::{End, LineEnd, Place};
use super::rtsp;
use super::{HTTP, RTMP, SRT, World};

/// Mail in a worker's inbox. Mail of control and units of mirrored streams share one order, as in a real mailbox.
#[derive(Debug)]
pub(super) enum WorkerMail {
    Control(ToWorker),
    Mirrored(MirroredUnit),
    Path(PathNews),
}

/// A file that keeps nothing but its length.
#[derive(Debug, Default)]
struct SimFile(AtomicU64);

impl AppendFile for SimFile {
    fn append(&self, data: &[Bytes]) -> Result<u64, AppendError> {
        let bytes = data.iter().map(|bytes| bytes.len() as u64).sum();
        Ok(self.0.fetch_add(bytes, Ordering::Relaxed) + bytes)
    }

    fn sync(&self) -> Result<(), AppendError> {
        Ok(())
    }
}

/// Appends to a file on a disk that accepts everything.
fn append(to: AppendTo, data: &[Bytes]) -> Outcome {
    let (file, name): (Arc<dyn AppendFile>, _) = match to {
        AppendTo::New { .. } | AppendTo::Path { .. } => (Arc::new(SimFile::default()), None),
        AppendTo::Recording { path, .. } => (Arc::new(SimFile::default()), path.last().cloned()),
        AppendTo::Open(file) => (file, None),
    };
    Outcome::Appended(file.append(data).map(|length| Appended { file, length, name }))
}

impl World {
    /// Runs a turn of a worker.
    pub(super) fn drive_worker(&mut self, index: usize) -> bool {
        if !self.threads.runs(index) {
            return false;
        }
        let now = self.now();
        // First continues the outputs whose sending was interrupted by a pause of the thread.
        let mut progress = self.perform_all(index);
        progress |= self.take_mail(index);
        if !self.threads.runs(index) {
            return progress;
        }
        if self.workers[index].poll_timeout().is_some_and(|due| due <= now.mono) {
            self.workers[index].handle_timeout(now);
            progress = true;
        }
        let first = (index, ConnId { slot: 0, generation: 0 });
        let places = self.network.places.range(first..).take_while(|((worker, _), _)| *worker == index);
        let has_room = |(wire, side): (usize, usize)| self.network.wires[wire].links[side].room() > 0;
        let writable: Vec<_> =
            places.filter(|(_, place)| has_room(**place)).map(|((_, conn), _)| *conn).collect();
        for conn in writable {
            self.workers[index].handle_writable(now, conn);
        }
        self.workers[index].finish_turn();
        while let Some((conn, way)) = self.workers[index].next_write(Writers::All) {
            progress |= match way {
                Way::Bytes => self.write_bytes(index, conn),
                Way::Datagrams => self.write_datagrams(index, conn),
            };
        }
        self.workers[index].finish_turn();
        progress | self.perform_all(index)
    }

    fn take_mail(&mut self, index: usize) -> bool {
        let now = self.now();
        let mut progress = false;
        for _ in 0..self.threads.batch() {
            if self.inboxes[index].is_empty() || self.threads.may_pause(now.mono, index) {
                break;
            }
            progress = true;
            match self.inboxes[index].pop_front() {
                Some(WorkerMail::Control(mail)) => self.workers[index].handle_mail(now, mail),
                Some(WorkerMail::Mirrored(unit)) => self.workers[index].handle_mirrored(now, unit),
                Some(WorkerMail::Path(news)) => self.workers[index].handle_path_news(&news),
                None => break,
            }
        }
        progress
    }

    fn write_bytes(&mut self, index: usize, conn: ConnId) -> bool {
        let now = self.clock.now();
        let mut bytes = Vec::new();
        let mut scratch = [0; wire::SCRATCH_BYTES];
        let mut gather = Gather::with_scratch(64 * 1024, &mut scratch);
        self.workers[index].gather(conn, &mut gather);
        gather.slices().iter().for_each(|slice| bytes.extend_from_slice(slice));
        let place = self.network.places.get(&(index, conn)).copied();
        let sent = place.map_or(0, |(wire, side)| self.send(wire, side, &bytes));
        self.workers[index].sent(now, conn, sent, bytes.len());
        sent > 0
    }

    fn write_datagrams(&mut self, index: usize, conn: ConnId) -> bool {
        let now = self.now();
        let mut out = Datagrams::new();
        let Some(to) = self.workers[index].gather_datagrams(now, conn, &mut out) else { return false };
        if out.is_empty() {
            return false;
        }
        let mut taken = 0;
        for datagram in 0..out.len() {
            taken += out.get(datagram).len();
            self.send_datagram(index, conn, to, out.get(datagram));
        }
        self.workers[index].datagrams_sent(now.mono, conn, taken, 0);
        true
    }

    fn perform_all(&mut self, index: usize) -> bool {
        let now = self.clock.now();
        let mut progress = false;
        while let Some(output) = self.workers[index].poll_output() {
            progress = true;
            self.perform(index, output);
            if self.threads.may_pause(now, index) {
                break;
            }
        }
        progress
    }

    fn perform(&mut self, worker: usize, output: Output) {
        match output {
            Output::Control(mail) => self.backstage.post(ControlMail::Worker(mail)),
            Output::Worker(to, mail) => {
                self.inboxes[usize::from(to.0)].push_back(WorkerMail::Control(mail));
            }
            Output::Others(mail) => {
                for other in (0..self.workers.len()).filter(|index| *index != worker) {
                    self.inboxes[other].push_back(WorkerMail::Control(mail.clone()));
                }
            }
            Output::Mirrored(to, unit) => {
                self.inboxes[usize::from(to.0)].push_back(WorkerMail::Mirrored(unit));
            }
            Output::Path(to, news) => self.inboxes[usize::from(to.0)].push_back(WorkerMail::Path(news)),
            Output::HandOver { .. } => panic!("nobody is carried by a byte stream in this world"),
            Output::Connect { conn, address, .. } => self.connect_out(worker, conn, address),
            Output::OpenUdp { conn, path, to, .. } => {
                if let Some(local) = rtsp::server_port(path, to) {
                    let (now, open) = (self.now(), PathEvent::Open { local: Some(local) });
                    return self.workers[worker].handle_path(now, conn, path, open);
                }
                self.open_udp(worker, conn, path, to);
            }
            Output::CloseUdp { conn, path } => self.network.end_own(worker, conn, Some(path)),
            Output::Close { conn, abort } => self.end_connection(worker, conn, abort),
            Output::Job { conn, job } => {
                let outcome = match job.work {
                    Work::Compute(work) if self.computes => Outcome::Computed(work.run()),
                    Work::FileAppend { to, data } if self.records => append(to, &data),
                    Work::FileSync { .. } if self.records => Outcome::Synced(Ok(())),
                    _ => Outcome::Opened(Err(FileError::NotFound)),
                };
                let done = JobDone { id: job.id, outcome };
                self.inboxes[worker].push_back(WorkerMail::Control(ToWorker::Job { conn, done }));
            }
            Output::Resume(_) | Output::UnsentLimit { .. } | Output::Authenticated { .. } => {}
        }
    }

    fn connect_out(&mut self, worker: usize, conn: ConnId, address: SocketAddr) {
        let now = self.now();
        if self.threads.chaos.connects_fail > 0.0 && self.random.chance(self.threads.chaos.connects_fail) {
            let refused = PathEvent::Broken("refused");
            return self.workers[worker].handle_path(now, conn, PathId::default(), refused);
        }
        let listener = if address == RTMP.parse().unwrap() {
            "rtmp"
        } else {
            assert_eq!(address, HTTP.parse().unwrap(), "nobody else is in this world");
            "http"
        };
        let target = self.any_worker();
        let peer = SocketAddr::from(([127, 0, 0, 1], 9999));
        let accepted = self.workers[target].accept(now, Listener::named(listener).unwrap(), peer);
        let end = accepted.map_or(End::Gone, |conn| End::Worker(target, conn));
        let links = self.links();
        let wire = self.network.add_wire([End::Worker(worker, conn), end], links);
        if accepted.is_none() {
            self.network.wires[wire].links[1].reset_at(now.mono);
        }
        let open = PathEvent::Open { local: None };
        self.workers[worker].handle_path(now, conn, PathId::default(), open);
    }

    fn open_udp(&mut self, worker: usize, conn: ConnId, path: PathId, to: Option<SocketAddr>) {
        let now = self.now();
        if to != Some(SRT.parse().unwrap()) {
            return self.workers[worker].handle_path(now, conn, path, PathEvent::Broken("unreachable"));
        }
        let number = u16::try_from(self.network.lines.len()).unwrap();
        let caller = SocketAddr::from(([127, 0, 0, 2], 10_000 + number));
        let latency = self.line_latency();
        let ends = [LineEnd::Own(worker, conn, path), LineEnd::Port(self.any_worker())];
        self.network.add_line(&self.seed, ends, caller, Place::srt(), latency);
        let open = PathEvent::Open { local: Some(caller) };
        self.workers[worker].handle_path(now, conn, path, open);
    }

    fn end_connection(&mut self, worker: usize, conn: ConnId, abort: bool) {
        let now = self.clock.now();
        self.network.end_own(worker, conn, None);
        let Some((wire, side)) = self.network.places.remove(&(worker, conn)) else { return };
        let wire = &mut self.network.wires[wire];
        wire.ends[side] = End::Gone;
        if abort {
            wire.links[side].reset_at(now);
        } else {
            wire.links[side].finish(now);
        }
    }
}
