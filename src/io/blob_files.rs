//! Large blobs are kept as files in memory, so that the kernel need not copy a segment for each of its many
//! viewers.
//!
//! Writing such a file costs as much as sending the blob to one viewer. Over TLS, the bytes of the file are
//! read like any other memory.

use std::io::{self, IoSlice, Write};
use std::os::fd::AsFd;
use std::sync::Arc;

use bytes::Bytes;
use mio::net::TcpStream;

use super::sys::{MemoryFiles, write_more};
use crate::hub::BlobMemory;

/// Minimum size of a blob that is kept in a file.
const BLOB_BYTES_MIN: usize = 64 * 1024;
/// Minimum number of bytes that are sent from a file. A smaller remainder of a blob is copied, which is faster.
const SEND_BYTES_MIN: usize = 8 * 1024;
/// Maximum number of files. This many blobs of [`BLOB_BYTES_MIN`] reach the limit on the bytes of all blobs.
const FILES_MAX: usize = 8192;
/// The maximum number of files is the process's descriptor limit divided by this.
const FILES_SHARE: u64 = 32;

/// The blob files of the process; `None` if the system does not support them.
#[derive(Debug, Clone, Default)]
pub(super) struct BlobFiles(Option<Arc<MemoryFiles>>);

impl BlobFiles {
    /// Makes the files for a process that may open this many descriptors, if known.
    pub(super) fn new(descriptors: Option<u64>) -> Self {
        let share = usize::try_from(descriptors.unwrap_or(0) / FILES_SHARE).unwrap_or(FILES_MAX);
        let files = MemoryFiles::new(FILES_MAX.min(share));
        if let Err(error) = &files {
            tracing::debug!(%error, "segments are copied for each viewer");
        }
        Self(files.ok())
    }

    /// Writes to a socket. Slices that lie in a file are sent from that file. Returns the number of bytes accepted.
    ///
    /// # Errors
    /// The error of a vectored write; nothing was accepted.
    pub(super) fn write(&self, stream: &mut TcpStream, mut slices: &[IoSlice<'_>]) -> io::Result<usize> {
        let is_in_file = |slice: &IoSlice<'_>| slice.len() >= SEND_BYTES_MIN && self.has(slice);
        let mut taken = 0_usize;
        while let Some(index) = slices.iter().position(is_in_file) {
            let (before, from) = slices.split_at(index);
            let (offered, result) = match from.split_first() {
                Some((file, behind)) if before.is_empty() => {
                    slices = behind;
                    (file.len(), self.send(stream, file))
                }
                Some(_) | None => {
                    slices = from;
                    (before.iter().map(|slice| slice.len()).sum(), write_more(stream.as_fd(), before))
                }
            };
            match result {
                Ok(some) => taken = taken.saturating_add(some),
                Err(error) if taken == 0 => return Err(error),
                // The error is not returned here, because bytes were already accepted. The next
                // write will return it.
                Err(_) => return Ok(taken),
            }
            if result.is_ok_and(|some| some < offered) || slices.is_empty() {
                return Ok(taken);
            }
        }
        match stream.write_vectored(slices) {
            Ok(some) => Ok(taken.saturating_add(some)),
            Err(error) if taken == 0 => Err(error),
            Err(_) => Ok(taken),
        }
    }

    fn has(&self, bytes: &[u8]) -> bool {
        self.0.as_ref().is_some_and(|files| files.slot_of(bytes).is_some())
    }

    fn send(&self, stream: &mut TcpStream, bytes: &[u8]) -> io::Result<usize> {
        match self.0.as_ref().and_then(|files| files.send(stream.as_fd(), bytes)) {
            Some(Ok(sent)) => Ok(sent),
            Some(Err(error))
                if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) =>
            {
                Err(error)
            }
            // Some kernels, sandboxes or sockets cannot send from a file, so the bytes are written instead. If the
            // socket itself is at fault, this write will fail, too.
            Some(Err(_)) | None => stream.write(bytes),
        }
    }
}

impl BlobMemory for BlobFiles {
    fn keep(&self, bytes: &Bytes) -> Option<Bytes> {
        self.0.as_ref().filter(|_| bytes.len() >= BLOB_BYTES_MIN)?.keep(bytes)
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::net::{self, TcpListener};

    use super::*;

    /// Makes both ends of a connection. The first one is nonblocking.
    fn pair() -> (TcpStream, net::TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let near = net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        near.set_nonblocking(true).unwrap();
        (TcpStream::from_std(near), listener.accept().unwrap().0)
    }

    /// Writes all parts while the peer reads. Each time, writes as much as the socket accepts. Returns the bytes
    /// that the peer received.
    fn arrives(files: &BlobFiles, parts: &[&[u8]]) -> Vec<u8> {
        let (mut near, mut far) = pair();
        let reader = std::thread::spawn(move || {
            let mut received = Vec::new();
            far.read_to_end(&mut received).map(|_| received)
        });
        let all: usize = parts.iter().map(|part| part.len()).sum();
        let mut taken = 0;
        while taken < all {
            let mut skip = taken;
            let rest = |part: &'_ &'_ [u8]| {
                let from = skip.min(part.len());
                skip -= from;
                part.len() - from
            };
            let lens: Vec<usize> = parts.iter().map(rest).collect();
            let slices: Vec<IoSlice<'_>> =
                parts.iter().zip(lens).map(|(part, len)| IoSlice::new(&part[part.len() - len..])).collect();
            let slices: Vec<IoSlice<'_>> = slices.into_iter().filter(|slice| !slice.is_empty()).collect();
            match files.write(&mut near, &slices) {
                Ok(some) => taken += some,
                Err(error) => assert_eq!(error.kind(), io::ErrorKind::WouldBlock),
            }
        }
        assert_eq!(taken, all);
        drop(near);
        reader.join().unwrap().unwrap()
    }

    #[test]
    fn what_is_in_files_and_what_is_not_arrives_in_order() {
        let files = BlobFiles::new(Some(1024));
        let bytes = |len: usize, seed: u8| {
            let mut byte = seed;
            let mut next = |at: usize| {
                byte = byte.wrapping_add(7).wrapping_add(u8::from(at.is_multiple_of(251)));
                byte
            };
            (0..len).map(&mut next).collect::<Bytes>()
        };
        let (large, small) = (bytes(3_000_000, 1), bytes(70_000, 2));
        let (in_file, other) = (files.keep(&large).unwrap(), files.keep(&small).unwrap());
        assert!(files.has(&in_file) && !files.has(&large));
        assert_eq!(files.keep(&bytes(BLOB_BYTES_MIN - 1, 0)), None);
        for parts in [
            &[&b"head"[..], &in_file][..],
            &[&in_file, &b"tail"[..]],
            &[b"a", b"b", &in_file[5..2_000_000], b"c", &other, &large, &in_file[..SEND_BYTES_MIN - 1]],
            &[&large],
        ] {
            assert!(arrives(&files, parts) == parts.concat());
            assert!(arrives(&BlobFiles::default(), parts) == parts.concat());
        }
    }

    #[test]
    fn a_full_socket_and_a_broken_one_say_so() {
        let files = BlobFiles::new(Some(1024));
        let kept = files.keep(&Bytes::from(vec![1; 8 << 20])).unwrap();
        let (mut near, far) = pair();
        let slices = [IoSlice::new(b"head"), IoSlice::new(&kept)];
        let taken = files.write(&mut near, &slices).unwrap();
        assert!(taken > 4 && taken < kept.len(), "{taken}");
        while files.write(&mut near, &[IoSlice::new(&kept)]).is_ok() {}
        let full = files.write(&mut near, &[IoSlice::new(&kept)]).unwrap_err();
        assert_eq!(full.kind(), io::ErrorKind::WouldBlock);
        // The peer has unread bytes, so closing its socket resets the connection.
        drop(far);
        let broken = loop {
            match files.write(&mut near, &[IoSlice::new(&kept)]) {
                Err(error) if error.kind() != io::ErrorKind::WouldBlock => break error.kind(),
                Ok(_) | Err(_) => std::thread::yield_now(),
            }
        };
        assert!(matches!(broken, io::ErrorKind::ConnectionReset | io::ErrorKind::BrokenPipe), "{broken}");
    }
}
