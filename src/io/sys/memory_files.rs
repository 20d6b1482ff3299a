//! Memory that the kernel can send without copying it. Each piece is a file that exists only in memory
//! (`memfd_create`). The file is sealed, and mapped so that it can be read like any other memory.
//!
//! 1. [`MemoryFiles::keep`] copies bytes into a file and returns them as [`Bytes`].
//! 2. When a write contains such bytes, their address identifies the file, and the kernel is made to send the file's
//!    pages ([`MemoryFiles::send`], `sendfile`).
//! 3. When the last reference is dropped, on any thread, the file is closed. Pages that the kernel is still sending
//!    stay in memory until they are acknowledged.
//!
//! A file is used only once. If its pages were reused, they could change in a packet that is on its way.
//!
//! Addresses are reserved at the start, in slots of equal length. An address therefore identifies its slot, and the
//! slot its file, without a lock.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, AtomicUsize, Ordering};

use bytes::Bytes;

/// Number of bytes of address space for each file, which is also the maximum length of a file: two seconds at 64 Mb/s.
const SLOT_BYTES: usize = 16 << 20;
/// Value of a slot without a file.
const FREE: RawFd = -1;
/// Value of a slot whose file is being made or closed.
const BUSY: RawFd = -2;

/// The slots of the whole process.
#[derive(Debug)]
pub(crate) struct MemoryFiles {
    base: NonNull<u8>,
    /// The descriptors of the files by slot.
    slots: Box<[AtomicI32]>,
    /// The slot at which the search for a free slot begins.
    next: AtomicUsize,
}

// SAFETY: the reservation belongs to no thread, and what is mapped there is read only.
unsafe impl Send for MemoryFiles {}
// SAFETY: as above; slots change hands by atomic operations.
unsafe impl Sync for MemoryFiles {}

impl MemoryFiles {
    /// Reserves addresses for `slots` files. No file is made yet.
    ///
    /// # Errors
    /// The system does not grant this much address space.
    pub(crate) fn new(slots: usize) -> io::Result<Arc<Self>> {
        let len = slots.checked_mul(SLOT_BYTES).ok_or(io::ErrorKind::OutOfMemory)?;
        let base = reserve(std::ptr::null_mut(), len, 0)?;
        let slots = (0..slots).map(|_| AtomicI32::new(FREE)).collect();
        Ok(Arc::new(Self { base, slots, next: AtomicUsize::new(0) }))
    }

    /// Copies bytes into a new file. Returns `None` if there are too many bytes, all slots are taken, or the system
    /// lacks memory or descriptors.
    pub(crate) fn keep(self: &Arc<Self>, bytes: &[u8]) -> Option<Bytes> {
        if bytes.is_empty() || bytes.len() > SLOT_BYTES {
            return None;
        }
        let slot = self.claim()?;
        let made = sealed_file(bytes).and_then(|file| self.map(slot, &file, bytes.len()).map(|()| file));
        let Ok(file) = made else {
            self.slots.get(slot)?.store(FREE, Ordering::Release);
            return None;
        };
        self.slots.get(slot)?.store(file.as_raw_fd(), Ordering::Release);
        Some(Bytes::from_owner(Kept { files: Arc::clone(self), _file: file, slot, len: bytes.len() }))
    }

    /// Sends bytes from the file that contains them. Returns the number of bytes that the socket accepted, or `None` if
    /// no file contains them.
    ///
    /// # Errors
    /// `WouldBlock` if no bytes were accepted; another error of the socket; or an error of a kernel that cannot send
    /// from files.
    pub(crate) fn send(&self, socket: BorrowedFd<'_>, bytes: &[u8]) -> Option<io::Result<usize>> {
        let (slot, offset) = self.slot_of(bytes)?;
        // The owner of the bytes holds a reference to their file, so the file stays open during this call.
        let file = self.slots.get(slot)?.load(Ordering::Acquire);
        let mut offset = libc::off_t::try_from(offset).ok()?;
        // SAFETY: both descriptors are open, and `offset` is a number that the call changes and that lives across it.
        let sent = unsafe { libc::sendfile(socket.as_raw_fd(), file, &raw mut offset, bytes.len()) };
        Some(usize::try_from(sent).map_err(|_| io::Error::last_os_error()))
    }

    /// Returns the slot that contains these bytes, and their offset in it.
    pub(crate) fn slot_of(&self, bytes: &[u8]) -> Option<(usize, usize)> {
        let offset = bytes.as_ptr().addr().checked_sub(self.base.addr().get())?;
        let slot = offset / SLOT_BYTES;
        (slot < self.slots.len()).then_some((slot, offset % SLOT_BYTES))
    }

    /// Claims a free slot.
    fn claim(&self) -> Option<usize> {
        let first = self.next.load(Ordering::Relaxed);
        let (before, behind) = self.slots.split_at_checked(first).unwrap_or((&[], &self.slots));
        let behind = (first..).zip(behind);
        let is_claimed = |slot: &AtomicI32| {
            slot.compare_exchange(FREE, BUSY, Ordering::Acquire, Ordering::Relaxed).is_ok()
        };
        let (slot, _) = behind.chain((0..).zip(before)).find(|(_, slot)| is_claimed(slot))?;
        self.next.store(slot.saturating_add(1), Ordering::Relaxed);
        Some(slot)
    }

    /// Returns the address of a slot.
    fn address(&self, slot: usize) -> *mut u8 {
        self.base.as_ptr().wrapping_add(slot.saturating_mul(SLOT_BYTES))
    }

    /// Maps a file into a claimed slot.
    fn map(&self, slot: usize, file: &OwnedFd, len: usize) -> io::Result<()> {
        let (address, file) = (self.address(slot).cast(), file.as_raw_fd());
        let flags = libc::MAP_PRIVATE | libc::MAP_FIXED | libc::MAP_NORESERVE;
        // SAFETY: the slot is within the reservation, `len` is within the slot, and the slot has no other user. The call
        // therefore replaces only reserved addresses.
        let mapped = unsafe { libc::mmap(address, len, libc::PROT_READ, flags, file, 0) };
        if mapped == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(()) }
    }
}

impl Drop for MemoryFiles {
    fn drop(&mut self) {
        let len = self.slots.len().saturating_mul(SLOT_BYTES);
        // SAFETY: `new` reserved these addresses with this length. Each mapping within them holds a reference to this
        // value, so none exists when this value is dropped.
        unsafe { libc::munmap(self.base.as_ptr().cast(), len) };
    }
}

/// Bytes of a file, for as long as they are referenced.
struct Kept {
    files: Arc<MemoryFiles>,
    /// Descriptor of the file, closed after the slot was cleared.
    _file: OwnedFd,
    slot: usize,
    len: usize,
}

impl AsRef<[u8]> for Kept {
    fn as_ref(&self) -> &[u8] {
        // SAFETY: `len` bytes of a file are mapped there while this value lives. The file is sealed: it neither changes
        // nor becomes shorter.
        unsafe { std::slice::from_raw_parts(self.files.address(self.slot), self.len) }
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        let Some(slot) = self.files.slots.get(self.slot) else { return };
        slot.store(BUSY, Ordering::Release);
        // If the system refuses to reserve the addresses of a slot again, the slot is no longer used.
        if reserve(self.files.address(self.slot), self.len, libc::MAP_FIXED).is_ok() {
            slot.store(FREE, Ordering::Release);
        }
    }
}

/// Reserves addresses without mapping anything: any free addresses, or, with `MAP_FIXED`, those from `at` on.
fn reserve(at: *mut u8, len: usize, flags: libc::c_int) -> io::Result<NonNull<u8>> {
    let flags = flags | libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: without MAP_FIXED the kernel chooses addresses that are free; with it the caller owns
    // the addresses, and holds no reference to the previous content.
    let base = unsafe { libc::mmap(at.cast(), len, libc::PROT_NONE, flags, -1, 0) };
    if base == libc::MAP_FAILED {
        return Err(io::Error::last_os_error());
    }
    NonNull::new(base.cast()).ok_or_else(|| io::ErrorKind::OutOfMemory.into())
}

/// Makes a file in memory with these bytes, sealed against changes.
fn sealed_file(mut bytes: &[u8]) -> io::Result<OwnedFd> {
    // SAFETY: the name ends with NUL.
    let file = unsafe {
        libc::memfd_create(c"millstream blob".as_ptr(), libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING)
    };
    if file < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the call has just made this descriptor, and no other code knows it.
    let file = unsafe { OwnedFd::from_raw_fd(file) };
    while !bytes.is_empty() {
        // SAFETY: the descriptor is open, and the call reads `bytes` within their length.
        let written = unsafe { libc::write(file.as_raw_fd(), bytes.as_ptr().cast(), bytes.len()) };
        match usize::try_from(written) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => bytes = bytes.get(written..).unwrap_or_default(),
            Err(_) => return Err(io::Error::last_os_error()),
        }
    }
    let seals = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_WRITE | libc::F_SEAL_SEAL;
    // SAFETY: the descriptor is open; the rest are numbers.
    match unsafe { libc::fcntl(file.as_raw_fd(), libc::F_ADD_SEALS, seals) } {
        0 => Ok(file),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Writes to a socket as a vectored write does, but announces that more data follows (`MSG_MORE`). The kernel then
/// holds back a partial packet.
///
/// # Errors
/// The error of the write.
pub(crate) fn write_more(socket: BorrowedFd<'_>, slices: &[io::IoSlice<'_>]) -> io::Result<usize> {
    // SAFETY: all zeroes are a message without address, slices and control data.
    let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
    message.msg_iov = slices.as_ptr().cast_mut().cast();
    message.msg_iovlen = slices.len() as _;
    // SAFETY: the descriptor is open; an `IoSlice` is an `iovec` by its documentation, and the call only reads
    // the slices and the memory that they name.
    let sent =
        unsafe { libc::sendmsg(socket.as_raw_fd(), &raw const message, libc::MSG_MORE | libc::MSG_NOSIGNAL) };
    usize::try_from(sent).map_err(|_| io::Error::last_os_error())
}

#[cfg(test)]
mod tests {
    use std::io::{IoSlice, Read};
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsFd;
    use std::thread;

    use super::*;

    fn open_files(files: &MemoryFiles) -> usize {
        files.slots.iter().filter(|slot| slot.load(Ordering::Acquire) >= 0).count()
    }

    #[test]
    fn what_is_kept_is_the_same_until_its_last_reference_goes_on_any_thread() {
        let files = MemoryFiles::new(3).unwrap();
        let first = files.keep(&vec![1; 5000]).unwrap();
        let second = files.keep(b"two").unwrap();
        let part = first.slice(10..);
        drop(first);
        assert_eq!((&part[..], &second[..]), (&vec![1; 4990][..], &b"two"[..]));
        assert_eq!(open_files(&files), 2);
        thread::spawn(move || drop(part)).join().unwrap();
        assert_eq!((open_files(&files), &second[..]), (1, &b"two"[..]));
    }

    #[test]
    fn there_is_room_for_so_many_and_no_longer_ones() {
        let files = MemoryFiles::new(3).unwrap();
        assert_eq!(files.keep(&[]), None);
        assert_eq!(files.keep(&vec![0; SLOT_BYTES + 1]), None);
        let mut kept: Vec<_> = (0..3).map(|value| files.keep(&[value; 9]).unwrap()).collect();
        assert_eq!(files.keep(&[1]), None);
        kept.remove(1);
        let longest = vec![7; SLOT_BYTES];
        kept.push(files.keep(&longest).unwrap());
        let expected: [&[u8]; 3] = [&[0; 9], &[2; 9], &longest];
        assert!(kept.iter().zip(expected).all(|(kept, expected)| kept == expected));
    }

    #[test]
    fn threads_that_keep_at_once_do_not_get_the_same_slot() {
        let files = MemoryFiles::new(8).unwrap();
        thread::scope(|scope| {
            for value in 0..4 {
                let files = &files;
                scope.spawn(move || {
                    for round in 0..200 {
                        let bytes = vec![value; 1 + round * 37];
                        let kept = [files.keep(&bytes).unwrap(), files.keep(&bytes).unwrap()];
                        assert!(kept.iter().all(|kept| *kept == bytes));
                    }
                });
            }
        });
        assert_eq!(open_files(&files), 0);
    }

    #[test]
    fn bytes_outlive_who_gave_them_out() {
        let files = MemoryFiles::new(1).unwrap();
        let kept = files.keep(b"still here").unwrap();
        drop(files);
        assert_eq!(kept, &b"still here"[..]);
    }

    #[test]
    fn only_bytes_of_a_file_are_sent_from_one() {
        let (files, others) = (MemoryFiles::new(2).unwrap(), MemoryFiles::new(1).unwrap());
        let (_first, kept) = (files.keep(b"first").unwrap(), files.keep(&[1; 100]).unwrap());
        assert_eq!(files.slot_of(&kept[10..20]), Some((1, 10)));
        assert_eq!(files.slot_of(&others.keep(b"other").unwrap()), None);
        assert_eq!(files.slot_of(b"static"), None);
        assert_eq!(files.slot_of(&[0; 9]), None);
    }

    /// The peer gets the bytes as they were when they were sent, even if it reads them late and the file was closed in
    /// the meantime.
    #[test]
    fn what_is_on_its_way_does_not_change() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let mut peer = listener.accept().unwrap().0;
        let files = MemoryFiles::new(1).unwrap();
        let kept = files.keep(&vec![1; 70_000]).unwrap();
        let head = [IoSlice::new(b"he"), IoSlice::new(b"ad")];
        assert_eq!(write_more(socket.as_fd(), &head).unwrap(), 4);
        assert_eq!(files.send(socket.as_fd(), &kept[2..]).unwrap().unwrap(), 69_998);
        drop(kept);
        let other = files.keep(&vec![9; 70_000]).unwrap();
        drop(socket);
        let mut received = Vec::new();
        peer.read_to_end(&mut received).unwrap();
        assert!(received == [&b"head"[..], &vec![1; 69_998]].concat());
        assert!(other.iter().all(|&byte| byte == 9));
    }
}
