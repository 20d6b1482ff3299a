//! The store's thread of a server without a cluster. During an upgrade it also talks to the other process of the server
//! (docs/upgrade.md):
//!
//! 1. Ordered to hand over ([`KeeperMail::Give`]), the thread asks control for the claims of this process, closes the
//!    store, and lets the newer process open it. Meanwhile requests wait in the thread's queue.
//! 2. From then on this process is a guest: commits and requests to the directory go to the newer process.
//! 3. If the newer process does not take the store, or ends before this one, the store is opened here again.
//!
//! In the newer process, this thread has the store. It answers the guest until the guest ends.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::{Shutdown, SocketAddr};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender};
use std::thread;
use std::time::Duration;

use super::wire::{self, Frame, WireNews, WireProcess, WireRequest};
use crate::directory::{ClaimAnswer, Desk, News, Node, Process, Request, Side};
use crate::io::control_thread::{ControlMail, ControlSender};
use crate::store::{self, Error, Op, RedbStore, Store};

/// Time in which the newer process has to open the store and to begin to serve.
pub(super) const TAKE_MAX: Duration = Duration::from_secs(60);
/// Number of attempts to open the store again, and the pause between two attempts.
const REOPEN_ATTEMPTS: u32 = 40;
const REOPEN_PAUSE: Duration = Duration::from_millis(250);
/// Time after which a process that reads no messages counts as gone.
pub(super) const WRITE_MAX: Duration = Duration::from_secs(10);

/// Mail of the store's thread.
#[derive(Debug)]
pub(in crate::io) enum KeeperMail {
    /// A request to the store.
    Store(store::Request),
    /// A request to the directory.
    Directory(Request),
    /// A message of the other process.
    Frame(Box<Frame>),
    /// The other process has ended.
    Gone,
    /// Say whether the store can be handed over now, or why not.
    MayGive(Sender<Result<(), String>>),
    /// Hand the store over to a newer process.
    Give(Giving),
    /// The server has ended.
    End,
}

/// An order to hand over the store.
#[derive(Debug)]
pub(in crate::io) struct Giving {
    /// The connection to the newer process.
    pub(super) stream: UnixStream,
    /// Address at which the newer process reaches the relay of this one.
    pub(super) relay: SocketAddr,
    /// Receiver of the result: the version of the newer process.
    pub(super) done: Sender<Result<String, String>>,
    /// Reports that the newer process has ended, if it has not taken the store.
    pub(super) ended: Receiver<()>,
}

/// The older process, from which this one takes over.
#[derive(Debug)]
pub(in crate::io) struct Guest {
    pub(super) stream: UnixStream,
    pub(super) desk: Desk,
}

/// The state of the store's thread.
#[derive(Debug)]
pub(in crate::io) struct Keeper {
    path: PathBuf,
    /// The store; `None` if the other process has it.
    store: Option<Box<RedbStore>>,
    /// Name of this process.
    own: Process,
    /// The directory; `None` if there has never been another process, or if the other process keeps it.
    desk: Option<Desk>,
    /// The connection to the other process.
    other: Option<UnixStream>,
    giving: Option<Giving>,
    /// Commits that the other process has not answered.
    unanswered: BTreeSet<u64>,
    /// The numbers of requests to the directory that the other process has not answered, each with the news for control
    /// if no answer comes.
    asked: BTreeMap<u64, News>,
    /// Shared with the thread that copies the store for a backup.
    copying: Arc<()>,
    control: ControlSender,
    mail: Sender<KeeperMail>,
}

impl Keeper {
    /// Makes the thread's state. `guest` is the process that this one takes over from.
    pub(in crate::io) fn new(
        (path, store): (PathBuf, Box<RedbStore>),
        own: Process,
        guest: Option<Guest>,
        (control, mail): (ControlSender, Sender<KeeperMail>),
    ) -> io::Result<Self> {
        let (mut desk, mut other) = (None, None);
        if let Some(guest) = guest {
            listen(guest.stream.try_clone()?, mail.clone())?;
            (desk, other) = (Some(guest.desk), Some(guest.stream));
        }
        let (store, giving, unanswered) = (Some(store), None, BTreeSet::new());
        let (asked, copying) = (BTreeMap::new(), Arc::default());
        Ok(Self { path, store, own, desk, other, giving, unanswered, asked, copying, control, mail })
    }

    /// Handles mail in order until the server ends.
    pub(in crate::io) fn run(mut self, queue: &Receiver<KeeperMail>) {
        while let Ok(mail) = queue.recv() {
            match mail {
                KeeperMail::Store(request) => self.store(request),
                KeeperMail::Directory(Request::Paired(claims)) => self.paired(claims),
                KeeperMail::Directory(request) => self.directory(request),
                KeeperMail::Frame(frame) => self.frame(*frame),
                KeeperMail::Gone => self.gone(),
                KeeperMail::MayGive(answer) => drop(answer.send(self.may_give())),
                KeeperMail::Give(giving) => match self.may_give() {
                    Ok(()) => {
                        self.giving = Some(giving);
                        self.tell(News::Pair(self.own.clone()));
                    }
                    Err(reason) => drop(giving.done.send(Err(reason))),
                },
                KeeperMail::End => break,
            }
        }
        if let Some(other) = self.other.take() {
            let _ = other.shutdown(Shutdown::Both);
        }
    }

    fn tell(&self, news: News) {
        self.control.send(ControlMail::Directory(news));
    }

    fn reply(&self, batch: u64, result: Result<(), Error>) {
        self.control.send(ControlMail::Store(store::Reply { batch, result }));
    }

    // ---- requests of control

    fn store(&mut self, request: store::Request) {
        match (request, &mut self.store) {
            (store::Request::Backup { batch, backup }, Some(store)) => {
                let (copying, control) = (store.backup(&backup), self.control.clone());
                let under_way = Arc::clone(&self.copying);
                let copy = move || {
                    let result = copying();
                    drop(under_way);
                    control.send(ControlMail::Store(store::Reply { batch, result }));
                };
                if let Err(error) = thread::Builder::new().name("backup".to_owned()).spawn(copy) {
                    self.reply(batch, Err(Error::Io { path: backup.name, reason: error.to_string() }));
                }
            }
            (store::Request::Commit { batch, ops }, Some(store)) => {
                let result = store.commit(&ops);
                if let Some(desk) = self.desk.as_mut().filter(|_| result.is_ok()) {
                    desk.committed(Side::Keeper, &ops);
                    self.deliver();
                }
                self.reply(batch, result);
            }
            (request @ (store::Request::Probe { .. } | store::Request::Rebuild { .. }), Some(store)) => {
                let store::Reply { batch, result } = store::handle(&mut **store, request);
                self.reply(batch, result);
            }
            (store::Request::Commit { batch, ops }, None) => {
                let frame = Frame::Commit { batch, ops: wire::ops_of(&ops) };
                match self.send(&frame) {
                    true => drop(self.unanswered.insert(batch)),
                    false => self.reply(batch, Err(away())),
                }
            }
            (store::Request::Probe { batch }, None) => self.reply(batch, Ok(())),
            // The other process has the records. An empty commit shows whether it can write them.
            (store::Request::Rebuild { batch, .. }, None) if self.other.is_some() => {
                self.store(store::Request::Commit { batch, ops: Vec::new() });
            }
            // The store is opened again. Its records are not rewritten.
            (store::Request::Rebuild { batch, .. }, None) => {
                let is_there = self.reopen();
                self.reply(batch, if is_there { Ok(()) } else { Err(away()) });
            }
            (store::Request::Backup { batch, .. }, None) => self.reply(batch, Err(away())),
        }
    }

    fn directory(&mut self, request: Request) {
        if self.store.is_some() {
            return self.answer(Side::Keeper, request);
        }
        let unanswered = without_answer(&request);
        let Some(request) = WireRequest::of(request) else { return };
        match (self.send(&Frame::Ask { request }), unanswered) {
            (true, Some((number, news))) => drop(self.asked.insert(number, news)),
            (false, Some((_, news))) => self.tell(news),
            (_, None) => {}
        }
    }

    // ---- the side with the store

    /// Answers a request to the directory.
    fn answer(&mut self, side: Side, request: Request) {
        let Some(desk) = &mut self.desk else { return };
        match (request, &mut self.store) {
            (Request::Burn { ticket, key }, Some(store)) => {
                let is_there = store.has(&key).unwrap_or(false);
                let burnt = if is_there { store.commit(&[Op::Delete(key.clone())]) } else { Ok(()) };
                desk.burnt(side, ticket, key, is_there && burnt.is_ok());
                if burnt.is_err() {
                    self.reply(store::OF_OTHERS, burnt);
                }
            }
            (request, _) => desk.handle_request(side, request),
        }
        self.deliver();
    }

    /// Delivers the directory's news to both processes.
    fn deliver(&mut self) {
        while let Some((side, news)) = self.desk.as_mut().and_then(Desk::poll_news) {
            match side {
                Side::Keeper => self.tell(news),
                Side::Guest => {
                    if let Some(news) = WireNews::of(news) {
                        self.send(&Frame::News { news });
                    }
                }
            }
        }
    }

    // ---- the other process

    /// Sends a message to the other process. Returns false if it is gone.
    fn send(&self, frame: &Frame) -> bool {
        let Some(other) = &self.other else { return false };
        match wire::send(other, frame) {
            Ok(()) => true,
            Err(error) => {
                tracing::debug!(%error, "the other process does not read");
                // The thread that reads from the other process reports its end.
                let _ = other.shutdown(Shutdown::Both);
                false
            }
        }
    }

    fn frame(&mut self, frame: Frame) {
        match (frame, &mut self.store) {
            (Frame::Commit { batch, ops }, Some(store)) => {
                let Some(ops) = wire::read_ops(ops) else {
                    tracing::warn!("commit of the older process not understood");
                    let error = Some(Error::Unknown.to_string());
                    let _ = self.send(&Frame::Committed { batch, error });
                    return;
                };
                let result = store.commit(&ops);
                if let Some(desk) = self.desk.as_mut().filter(|_| result.is_ok()) {
                    desk.committed(Side::Guest, &ops);
                }
                self.deliver();
                let error = result.as_ref().err().map(ToString::to_string);
                if result.is_err() {
                    // After a failed commit the store is closed. Control then writes all records again.
                    self.reply(store::OF_OTHERS, result);
                }
                self.send(&Frame::Committed { batch, error });
            }
            (Frame::Ask { request }, Some(_)) => match request.read() {
                Some(request) => self.answer(Side::Guest, request),
                None => tracing::warn!("request of the older process not understood"),
            },
            (Frame::Committed { batch, error }, None) if self.unanswered.remove(&batch) => {
                let path = "the newer process".to_owned();
                self.reply(batch, error.map_or(Ok(()), |reason| Err(Error::Io { path, reason })));
            }
            (Frame::News { news }, None) => match news.read() {
                Some(news) => {
                    if let News::Answer { ticket: number, .. } | News::Burnt { ticket: number, .. } = &news {
                        self.asked.remove(number);
                    }
                    self.tell(news);
                }
                None => tracing::warn!("news of the newer process not understood"),
            },
            (frame, _) => tracing::warn!(kind = frame.kind(), "unexpected message of the other process"),
        }
    }

    /// Handles the end of the other process.
    fn gone(&mut self) {
        let Some(other) = self.other.take() else { return };
        // A process that reads no messages may still run. After this, none of its messages arrive.
        let _ = other.shutdown(Shutdown::Both);
        if self.store.is_some() {
            tracing::info!("upgrade complete: the older process has ended");
            if let Some(desk) = &mut self.desk {
                desk.guest_left();
            }
            return self.deliver();
        }
        tracing::error!("the newer process has ended before this one");
        // Control takes these answers as the loss of the directory, so they come before the news that it is back.
        for news in std::mem::take(&mut self.asked).into_values() {
            self.tell(news);
        }
        if !self.reopen() {
            self.tell(News::Contact(false));
        }
        for batch in std::mem::take(&mut self.unanswered) {
            self.reply(batch, Err(away()));
        }
    }

    /// Opens the store after the newer process has ended. Asks control for the claims of this process.
    fn reopen(&mut self) -> bool {
        for attempt in 0..REOPEN_ATTEMPTS {
            match RedbStore::open_existing(&self.path) {
                Ok(store) => {
                    tracing::info!("store open again");
                    self.store = Some(Box::new(store));
                    self.tell(News::Contact(true));
                    self.tell(News::Pair(self.own.clone()));
                    let desk = self.desk.insert(Desk::new(Node::of(self.own.clone(), ""), BTreeMap::new()));
                    desk.tell_nodes();
                    self.deliver();
                    return true;
                }
                Err(Error::Locked(_)) if attempt + 1 < REOPEN_ATTEMPTS => thread::sleep(REOPEN_PAUSE),
                Err(error) => {
                    tracing::error!(%error, "store not opened again");
                    return false;
                }
            }
        }
        false
    }

    // ---- handing over

    /// Returns the reason why the store cannot be handed over now.
    fn may_give(&self) -> Result<(), String> {
        let obstacle = match &self.store {
            _ if self.other.is_some() => {
                "the process of the last upgrade still serves sessions; see docs/upgrade.md"
            }
            None => "the store is not open",
            Some(store) if !store.is_open() => "the store cannot be written",
            Some(_) if Arc::strong_count(&self.copying) > 1 => "a backup is under way",
            Some(_) => return Ok(()),
        };
        Err(obstacle.to_owned())
    }

    /// Handles control's report of the claims of this process, and hands over the store if that was ordered.
    fn paired(&mut self, claims: Vec<(crate::types::StreamKey, crate::directory::Holder)>) {
        let Some(giving) = self.giving.take() else {
            if let Some(desk) = &mut self.desk {
                desk.add_claims(claims);
            }
            return;
        };
        let mut desk =
            self.desk.take().unwrap_or_else(|| Desk::new(Node::of(self.own.clone(), ""), BTreeMap::new()));
        desk.add_claims(claims);
        let Giving { stream, relay, done, ended } = giving;
        if let Err(reason) = self.may_give() {
            let _ = done.send(Err(reason));
            desk.tell_nodes();
            self.desk = Some(desk);
            return self.deliver();
        }
        self.store = None;
        match take(&stream, &self.own, relay, &desk) {
            Ok((newer, version)) => {
                let own = Node::of(self.own.clone(), "");
                self.other = Some(stream);
                self.tell(News::Nodes(vec![own, newer]));
                let reading = self.other.as_ref().map(UnixStream::try_clone);
                let heard = reading.map(|stream| stream.and_then(|stream| listen(stream, self.mail.clone())));
                if let Some(Err(error)) = heard {
                    tracing::error!(%error, "the newer process is not heard");
                }
                let _ = done.send(Ok(version));
            }
            Err(reason) => {
                let _ = stream.shutdown(Shutdown::Both);
                let _ = done.send(Err(reason));
                // The store can be opened only after the newer process has ended.
                let _ = ended.recv_timeout(TAKE_MAX);
                self.reopen();
            }
        }
    }
}

/// Lets the newer process take the store. Returns that process as a node, and its version.
fn take(
    stream: &UnixStream,
    own: &Process,
    relay: SocketAddr,
    desk: &Desk,
) -> Result<(Node, String), String> {
    let failed = |error: io::Error| format!("the new process has not taken over: {error}");
    let (process, claims) = (WireProcess::of(own), wire::claims_of(desk.claims()));
    wire::send(stream, &Frame::Take { process, relay, claims }).map_err(failed)?;
    stream.set_read_timeout(Some(TAKE_MAX)).map_err(failed)?;
    let answer = wire::receive(stream).map_err(failed)?;
    stream.set_read_timeout(None).map_err(failed)?;
    let Frame::Took { process, relay, version } = answer else {
        return Err(format!("the new process answers \"{}\"", answer.kind()));
    };
    let process = process.read().ok_or_else(|| "the new process has no name".to_owned())?;
    Ok((Node::of(process, &relay.to_string()), version))
}

/// Starts the thread that reads the messages of the other process.
fn listen(stream: UnixStream, mail: Sender<KeeperMail>) -> io::Result<()> {
    let read = move || {
        while let Ok(frame) = wire::receive(&stream) {
            if mail.send(KeeperMail::Frame(Box::new(frame))).is_err() {
                return;
            }
        }
        let _ = mail.send(KeeperMail::Gone);
    };
    thread::Builder::new().name("upgrade".to_owned()).spawn(read).map(drop)
}

/// Returns the number of a request that needs an answer, and the news for control if the request reaches no directory.
fn without_answer(request: &Request) -> Option<(u64, News)> {
    if let Request::Claim { ticket, key } = request {
        let answer = ClaimAnswer::Away;
        return Some((*ticket, News::Answer { ticket: *ticket, key: key.clone(), answer }));
    }
    let Request::Burn { ticket, .. } = request else { return None };
    Some((*ticket, News::Burnt { ticket: *ticket, is_burnt: false }))
}

fn away() -> Error {
    Error::Io { path: "the store".to_owned(), reason: "is with another process of this server".to_owned() }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use bytes::Bytes;

    use super::*;
    use crate::io::control_thread::control_channel;
    use crate::store::Key;
    use crate::tests::TempFolder;
    use crate::types::NodeId;

    struct Rig {
        folder: TempFolder,
        keeper: Keeper,
        heard: Receiver<ControlMail>,
        other: UnixStream,
    }

    fn node(name: &str) -> Node {
        Node::of(Process { node: NodeId::new(name).unwrap(), incarnation: 1 }, "")
    }

    fn put() -> Vec<Op> {
        vec![Op::Put(Key::new(store::Kind::Broadcast, "live", "s"), Bytes::from_static(b"{}"))]
    }

    impl Rig {
        /// Makes the store's thread of a process that has the store (`has_store`), or of the other process of an
        /// upgrade.
        fn new(has_store: bool) -> Self {
            let (folder, (own, other)) = (TempFolder::new(), UnixStream::pair().unwrap());
            let path = folder.join("store.redb");
            let store = Box::new(RedbStore::open(&path).unwrap());
            let ((control, heard), (mail, _)) = (control_channel(), std::sync::mpsc::channel());
            let process = Process { node: NodeId::new("own").unwrap(), incarnation: 1 };
            let desk = Desk::new(node("own"), BTreeMap::new()).with_guest(node("old"));
            let guest = has_store.then(|| Guest { stream: own.try_clone().unwrap(), desk });
            let mut keeper = Keeper::new((path, store), process, guest, (control, mail)).unwrap();
            if !has_store {
                (keeper.store, keeper.other) = (None, Some(own));
            }
            Self { folder, keeper, heard, other }
        }

        fn reply(&self) -> store::Reply {
            let replies = self
                .heard
                .try_iter()
                .filter_map(|mail| if let ControlMail::Store(reply) = mail { Some(reply) } else { None });
            let [reply] = replies.collect::<Vec<_>>().try_into().unwrap();
            reply
        }

        /// Commits for the other process. Returns the error that it gets.
        fn commit(&mut self, ops: &[Op]) -> Option<String> {
            self.keeper.frame(Frame::Commit { batch: 5, ops: wire::ops_of(ops) });
            loop {
                let frame = wire::receive(&self.other).unwrap();
                if let Frame::Committed { batch: 5, error } = frame {
                    return error;
                }
                assert!(matches!(frame, Frame::News { .. }), "{}", frame.kind());
            }
        }
    }

    #[test]
    fn a_failed_commit_of_the_other_process_makes_control_write_the_store_anew() {
        let mut rig = Rig::new(true);
        assert_eq!(rig.commit(&put()), None);
        fs::rename(rig.folder.join("store.redb"), rig.folder.join("moved")).unwrap();
        assert!(rig.commit(&put()).is_some());
        let store::Reply { batch: store::OF_OTHERS, result: Err(_) } = rig.reply() else { panic!() };
        assert!(rig.commit(&[]).is_some(), "an empty commit shows it, too");
        assert_eq!(rig.reply().batch, store::OF_OTHERS);
        rig.keeper.store(store::Request::Rebuild { batch: 6, all: Vec::new() });
        assert_eq!(rig.reply(), store::Reply { batch: 6, result: Ok(()) });
        assert_eq!((rig.commit(&[]), rig.commit(&put())), (None, None));
    }

    #[test]
    fn the_store_of_the_other_process_is_writable_again_when_an_empty_commit_succeeds() {
        let mut rig = Rig::new(false);
        for error in [Some("the disk is full".to_owned()), None] {
            rig.keeper.store(store::Request::Rebuild { batch: 3, all: Vec::new() });
            let Frame::Commit { batch: 3, ops } = wire::receive(&rig.other).unwrap() else { panic!() };
            assert!(ops.is_empty() && rig.heard.try_recv().is_err());
            let is_writable = error.is_none();
            rig.keeper.frame(Frame::Committed { batch: 3, error });
            let reply = rig.reply();
            assert_eq!((reply.batch, reply.result.is_ok()), (3, is_writable));
        }
    }

    #[test]
    fn a_process_that_does_not_read_is_gone() {
        let mut rig = Rig::new(true);
        let other = rig.keeper.other.as_ref().unwrap();
        other.set_write_timeout(Some(Duration::from_millis(20))).unwrap();
        let frame = Frame::Committed { batch: 1, error: Some("x".repeat(1 << 20)) };
        let sent = (0..100).take_while(|_| rig.keeper.send(&frame)).count();
        assert!(sent < 100 && !rig.keeper.send(&Frame::Ready));
        rig.keeper.gone();
        let told: Vec<_> = rig.heard.try_iter().collect();
        let [ControlMail::Directory(News::Nodes(nodes))] = told.as_slice() else { panic!("{told:?}") };
        assert_eq!(nodes.len(), 1);
    }

    #[test]
    fn a_claim_without_an_answer_of_the_newer_process_is_answered_when_that_process_ends() {
        let mut rig = Rig::new(false);
        let claim = |ticket| Request::Claim { ticket, key: crate::types::StreamKey::new("live", "s") };
        rig.keeper.directory(claim(7));
        rig.keeper.directory(claim(8));
        let granted = News::Answer {
            ticket: 7,
            key: crate::types::StreamKey::new("live", "s"),
            answer: ClaimAnswer::Granted(3),
        };
        rig.keeper.frame(Frame::News { news: WireNews::of(granted.clone()).unwrap() });
        rig.keeper.gone();
        let news = |mail| if let ControlMail::Directory(news) = mail { Some(news) } else { None };
        let told = rig.heard.try_iter().filter_map(news);
        let told: Vec<News> = told.collect();
        let away = News::Answer {
            ticket: 8,
            key: crate::types::StreamKey::new("live", "s"),
            answer: ClaimAnswer::Away,
        };
        assert_eq!(told[..3], [granted, away, News::Contact(true)]);
    }

    #[test]
    fn a_store_that_is_copied_or_broken_is_not_handed_over() {
        let mut rig = Rig::new(true);
        assert!(rig.keeper.may_give().unwrap_err().contains("still serves sessions"));
        rig.keeper.gone();
        assert_eq!(rig.keeper.may_give(), Ok(()));
        let copy = Arc::clone(&rig.keeper.copying);
        assert!(rig.keeper.may_give().unwrap_err().contains("backup"));
        drop(copy);
        fs::rename(rig.folder.join("store.redb"), rig.folder.join("moved")).unwrap();
        rig.keeper.store(store::Request::Commit { batch: 1, ops: put() });
        assert!(rig.keeper.may_give().unwrap_err().contains("written"));
    }
}
