//! Threads that look after files for the workers: a disk may take its time, a worker may not.
//!
//! A file is opened name by name from the `webapps` folder, and no link is followed: whatever stands below the folder,
//! what is served lies in it.

use std::ffi::CString;
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::Path;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use bytes::{Bytes, BytesMut};

use super::doorbell::{Mail, Postbox};
use super::sys;
use crate::mail::{BlockSource, FileAsk, FileError, FileReply, OpenedFile, ToWorker};
use crate::types::{ConnId, WorkerId};

/// Threads: a disk that hangs holds one wish each.
const THREADS: usize = 4;
/// Wishes that wait for a thread; more are refused at once.
const QUEUE_MAX: usize = 4096;
/// Folders above a file, at most.
const SEGMENTS_MAX: usize = 32;

/// A wish of a session.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) worker: WorkerId,
    pub(super) conn: ConnId,
    pub(super) ask: FileAsk,
}

/// The way to the threads; cheap to clone. The last one ends them.
#[derive(Debug, Clone)]
pub(super) struct Disk(SyncSender<Request>);

impl Disk {
    /// Hands a wish over. `Some`: the threads cannot keep up, and this is the answer.
    pub(super) fn ask(&self, request: Request) -> Option<FileReply> {
        let Err(TrySendError::Full(refused) | TrySendError::Disconnected(refused)) = self.0.try_send(request)
        else {
            return None;
        };
        tracing::warn!("too many files wait for the disk");
        Some(match refused.ask {
            FileAsk::Open { .. } => FileReply::Opened(Err(FileError::Failed)),
            FileAsk::Read { .. } => FileReply::Block(Bytes::new()),
        })
    }
}

/// Starts the threads.
pub(super) fn start(home: &Path, workers: &[Postbox]) -> io::Result<Disk> {
    let (requests, queue) = sync_channel(QUEUE_MAX);
    let queue = Arc::new(Mutex::new(queue));
    for index in 0..THREADS {
        let (queue, workers) = (Arc::clone(&queue), workers.to_vec());
        let webapps = home.join("webapps");
        thread::Builder::new()
            .name(format!("disk-{index}"))
            .spawn(move || serve_all(&queue, &workers, &webapps))?;
    }
    Ok(Disk(requests))
}

fn serve_all(queue: &Mutex<Receiver<Request>>, workers: &[Postbox], webapps: &Path) {
    loop {
        let request = queue.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok(Request { worker, conn, ask }) = request else { return };
        let reply = match ask {
            FileAsk::Open { segments } => FileReply::Opened(open(webapps, &segments)),
            FileAsk::Read { file, offset, length } => FileReply::Block(file.read_block(offset, length)),
        };
        if let Some(worker) = workers.get(usize::from(worker.0)) {
            worker.post(Mail::Control(ToWorker::File { conn, reply }));
        }
    }
}

/// Opens the file of these names below `root`.
fn open(root: &Path, segments: &[String]) -> Result<OpenedFile, FileError> {
    let Some((name, folders)) = segments.split_last().filter(|(_, folders)| folders.len() < SEGMENTS_MAX)
    else {
        return Err(FileError::NotFound);
    };
    let root = OpenOptions::new().read(true).custom_flags(libc::O_DIRECTORY).open(root);
    let mut folder = OwnedFd::from(root.map_err(|error| blame(&error))?);
    for segment in folders {
        folder = step(&folder, segment, libc::O_PATH | libc::O_DIRECTORY)?;
    }
    // A pipe without a writer would hold the thread for ever.
    let file = File::from(step(&folder, name, libc::O_RDONLY | libc::O_NONBLOCK)?);
    let metadata = file.metadata().map_err(|error| blame(&error))?;
    if metadata.is_dir() {
        return Err(FileError::Directory);
    }
    if !metadata.is_file() {
        return Err(FileError::NotFound);
    }
    let seconds = u64::try_from(metadata.mtime()).unwrap_or(0);
    let nanos = u64::try_from(metadata.mtime_nsec()).unwrap_or(0);
    Ok(OpenedFile {
        length: metadata.len(),
        modified_ms: seconds.saturating_mul(1000).saturating_add(nanos / 1_000_000),
        tag: format!("{:x}-{seconds:x}-{nanos:x}", metadata.len()),
        file: Arc::new(Served(file)),
    })
}

fn step(folder: &OwnedFd, name: &str, flags: libc::c_int) -> Result<OwnedFd, FileError> {
    // The path was checked already; here is where it counts.
    if name.is_empty() || name == "." || name == ".." || name.contains('/') {
        return Err(FileError::NotFound);
    }
    let name = CString::new(name).map_err(|_| FileError::NotFound)?;
    sys::open_beside(folder.as_fd(), &name, flags).map_err(|error| blame(&error))
}

fn blame(error: &io::Error) -> FileError {
    match error.raw_os_error() {
        // ELOOP: a link, which is not followed. EACCES: what the server may not read is not served. ENXIO: a socket.
        Some(
            libc::ENOENT | libc::ENOTDIR | libc::ELOOP | libc::EACCES | libc::ENAMETOOLONG | libc::ENXIO,
        ) => FileError::NotFound,
        _ => {
            tracing::warn!(%error, "a file cannot be opened");
            FileError::Failed
        }
    }
}

/// An open file.
#[derive(Debug)]
struct Served(File);

impl BlockSource for Served {
    fn read_block(&self, offset: u64, length: usize) -> Bytes {
        let mut block = BytesMut::zeroed(length);
        match self.0.read_at(&mut block, offset) {
            Ok(count) => {
                block.truncate(count);
                block.freeze()
            }
            Err(error) => {
                tracing::warn!(%error, "a file cannot be read");
                Bytes::new()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn what_a_disk_that_hangs_cannot_take_is_refused_at_once() {
        let (requests, queue) = sync_channel(2);
        let disk = Disk(requests);
        let ask = |ask| {
            let conn = ConnId { slot: 0, generation: 0 };
            disk.ask(Request { worker: WorkerId(0), conn, ask })
        };
        let open = || FileAsk::Open { segments: vec!["x".into()] };
        assert!(ask(open()).is_none() && ask(open()).is_none());
        assert!(matches!(ask(open()), Some(FileReply::Opened(Err(FileError::Failed)))));
        let file = Arc::new(Served(File::open("/dev/null").unwrap()));
        let read = ask(FileAsk::Read { file, offset: 0, length: 1 });
        assert!(matches!(read, Some(FileReply::Block(block)) if block.is_empty()));
        queue.recv().unwrap();
        assert!(ask(open()).is_none());
    }

    #[test]
    fn h_16_nothing_leads_out_of_the_folder() {
        let home = std::env::temp_dir().join(format!("millstream-disk-{}", std::process::id()));
        let root = home.join("www");
        fs::create_dir_all(root.join("live/streams")).unwrap();
        fs::create_dir_all(home.join("www_secret")).unwrap();
        fs::write(home.join("www_secret/x"), "secret").unwrap();
        fs::write(root.join("live/streams/a.mp4"), "0123456789").unwrap();
        std::os::unix::fs::symlink(home.join("www_secret"), root.join("live/out")).unwrap();
        std::os::unix::fs::symlink(home.join("www_secret/x"), root.join("live/x")).unwrap();
        std::os::unix::fs::symlink("streams/a.mp4", root.join("live/in")).unwrap();
        let open = |path: &str| open(&root, &path.split('/').map(str::to_owned).collect::<Vec<_>>());
        for path in [
            "live/out/x",
            "live/x",
            "live/in",
            "live/../www_secret/x",
            "../www_secret/x",
            "live/./streams/a.mp4",
            "live//streams/a.mp4",
            "live/streams/a.mp4/b",
            "live/none",
            "",
        ] {
            assert_eq!(open(path).unwrap_err(), FileError::NotFound, "{path}");
        }
        assert_eq!(open("live/streams").unwrap_err(), FileError::Directory);
        assert_eq!(open(&vec!["a"; 40].join("/")).unwrap_err(), FileError::NotFound);
        let opened = open("live/streams/a.mp4").unwrap();
        assert_eq!((opened.length, opened.file.read_block(3, 4)), (10, Bytes::from_static(b"3456")));
        assert_eq!(opened.file.read_block(10, 4), Bytes::new());
        let pipe = CString::new(root.join("live/pipe").to_str().unwrap()).unwrap();
        assert!(std::process::Command::new("mkfifo").arg(pipe.to_str().unwrap()).status().unwrap().success());
        assert_eq!(open("live/pipe").unwrap_err(), FileError::NotFound);
        fs::remove_dir_all(home).unwrap();
    }
}
