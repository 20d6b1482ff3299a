//! MP4: the index before the media, which says nothing about samples in fragments, is replaced by one that has an entry
//! for every sample (`fmp4::plain_head`).
//!
//! If the room before the fragments is too small for the index, the file system inserts room without moving the media
//! (`FALLOC_FL_INSERT_RANGE`). If it cannot, the media is copied to a second file. The index is written into the room,
//! and after it the eight bytes that make it valid. Until then the file is still a fragmented one.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::fd::AsFd;
use std::os::unix::fs::{FileExt, MetadataExt};

use bytes::Bytes;
use fmp4::{Indexed, Indexer, Limits, PlainHead, plain_head};

use super::{BOXES_MAX, Complete, Insert, Place, damaged, may_be_cut, read};
use crate::io::sys;

/// Bytes of the head of a box.
const BOX_HEAD_BYTES: usize = 8;
/// The boxes before the fragments. `FRAGMENT` lists the boxes that may begin a fragment.
const HEAD: [&[u8; 4]; 3] = [b"ftyp", b"free", b"moov"];
const FRAGMENT: [&[u8; 4]; 2] = [b"moof", b"styp"];

/// Returns length and type of the box at an offset.
fn box_at(file: &File, offset: u64) -> io::Result<(u64, [u8; 4])> {
    let head = read(file, offset, BOX_HEAD_BYTES.saturating_mul(2))?;
    let number = |range: std::ops::Range<usize>| {
        let bytes = head.get(range).ok_or(io::ErrorKind::UnexpectedEof)?;
        Ok::<u64, io::Error>(bytes.iter().fold(0, |number, byte| number << 8 | u64::from(*byte)))
    };
    let kind = head.get(4..8).and_then(|kind| kind.try_into().ok()).ok_or(io::ErrorKind::UnexpectedEof)?;
    let short = number(0..4)?;
    Ok((if short == 1 { number(8..16)? } else { short }, kind))
}

/// Turns a fragmented recording into a plain file.
pub(super) fn complete(place: &Place, file: File, insert: Insert) -> io::Result<Complete> {
    if is_plain(&file)? {
        return Ok(Complete::File(file));
    }
    let Some(indexed) = index(&file)? else {
        return Ok(if is_begun_only(&file)? { Complete::Nothing } else { Complete::Junk });
    };
    if !may_be_cut(&file, indexed.end, true)? {
        return Ok(Complete::Junk);
    }
    file.set_len(indexed.end)?;
    match make_room(&file, &indexed, insert)? {
        Some((head, from)) => switch(&file, &head, from).map(|()| Complete::File(file)),
        None => copy(place, &file, &indexed).map(Complete::File),
    }
}

/// True if the file is already a plain one, with the index directly after `ftyp`.
fn is_plain(file: &File) -> io::Result<bool> {
    match box_at(file, 0) {
        Ok((from, _)) => Ok(box_at(file, from).is_ok_and(|(_, kind)| kind == *b"moov")),
        // Nothing was written yet.
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
        Err(error) => Err(error),
    }
}

/// True if a file without samples contains only what its sink writes at the beginning: the head or a part of it, and
/// perhaps a torn fragment.
fn is_begun_only(file: &File) -> io::Result<bool> {
    let mut at = 0;
    for _ in 0..BOXES_MAX {
        match box_at(file, at) {
            Ok((length, kind)) if HEAD.contains(&&kind) => {
                at = at.saturating_add(length.max(BOX_HEAD_BYTES as u64));
            }
            Ok((_, kind)) => return may_be_cut(file, at, at > 0 && FRAGMENT.contains(&&kind)),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(true),
            Err(error) => return Err(error),
        }
    }
    Ok(false)
}

/// Indexes all samples; `None` if there are none.
fn index(file: &File) -> io::Result<Option<Indexed>> {
    let mut indexer = Indexer::new(file.metadata()?.len(), Limits::default());
    while let Some((offset, length)) = indexer.wanted() {
        match indexer.take(&read(file, offset, length)?) {
            Ok(()) => {}
            // Not even the head of the file was written.
            Err(fmp4::Error::NoIndex | fmp4::Error::Unfinished { .. }) => return Ok(None),
            Err(error) => return Err(damaged(error)),
        }
    }
    match indexer.finish() {
        Ok(indexed) => Ok(Some(indexed).filter(|indexed| !indexed.tracks.is_empty())),
        Err(fmp4::Error::NoIndex) => Ok(None),
        Err(error) => Err(damaged(error)),
    }
}

/// Returns the bytes to write after `ftyp`, and their offset. `None` if there is no room for them and none can be made.
fn make_room(file: &File, indexed: &Indexed, insert: Insert) -> io::Result<Option<(Bytes, u64)>> {
    let (from, _) = box_at(file, 0)?;
    let block = file.metadata()?.blksize().max(1);
    let mut moved = 0;
    loop {
        let short = match plain_head(indexed, from, moved).map_err(damaged)? {
            PlainHead::Fits(head) => return Ok(Some((head, from))),
            PlainHead::Short(short) => short.next_multiple_of(block),
        };
        if block >= indexed.moov_at || insert(file.as_fd(), block, short).is_err() {
            // Room that was already inserted may stay: the file is indexed again before it is copied.
            return Ok(None);
        }
        moved = moved.saturating_add(short);
        // Extend the `free` box over the inserted room. Until this write, zeros follow the box.
        let free = indexed.moov_at.saturating_add(moved).saturating_sub(from);
        let free = u32::try_from(free).map_err(|_| io::ErrorKind::FileTooLarge)?;
        file.write_all_at(&free.to_be_bytes(), from)?;
        file.sync_data()?;
    }
}

/// Writes the index, which makes the file a plain one.
fn switch(file: &File, head: &Bytes, from: u64) -> io::Result<()> {
    let (first, rest) = head.split_at_checked(BOX_HEAD_BYTES).ok_or(io::ErrorKind::InvalidData)?;
    file.write_all_at(rest, from.saturating_add(BOX_HEAD_BYTES as u64))?;
    file.sync_data()?;
    file.write_all_at(first, from)?;
    file.sync_data()
}

/// Writes a plain copy beside the fragmented file, and replaces that file by the copy. The name stays the unfinished
/// one.
fn copy(place: &Place, file: &File, indexed: &Indexed) -> io::Result<File> {
    // Room may have been inserted into the file since it was indexed.
    let again = index(file)?;
    let indexed = again.as_ref().unwrap_or(indexed);
    let (from, _) = box_at(file, 0)?;
    let block = file.metadata()?.blksize().max(1);
    let mut moved = 0;
    let head = loop {
        match plain_head(indexed, from, moved).map_err(damaged)? {
            PlainHead::Fits(head) => break head,
            // File systems can share blocks between two files only if the blocks are aligned equally.
            PlainHead::Short(short) => moved = short.saturating_add(moved).next_multiple_of(block),
        }
    };
    let flags = libc::O_RDWR | libc::O_CREAT | libc::O_TRUNC;
    let mut to = place.open(&place.copy, flags)?;
    let file_type = read(file, 0, usize::try_from(from).unwrap_or(0))?;
    to.write_all_at(&file_type, 0)?;
    to.write_all_at(&head, from)?;
    let (mut media, at) = (file, indexed.moov_at);
    media.seek(SeekFrom::Start(at))?;
    to.seek(SeekFrom::Start(at.saturating_add(moved)))?;
    // The kernel copies the bytes itself where possible.
    io::copy(&mut media.take(indexed.end.saturating_sub(at)), &mut to)?;
    to.sync_all()?;
    sys::replace_beside(place.folder.as_fd(), &place.copy, &place.unfinished)?;
    place.sync()?;
    Ok(to)
}

/// Returns the duration that a plain file states, in milliseconds.
pub(super) fn duration_ms(file: &File) -> io::Result<u64> {
    let mut at = 0;
    for _ in 0..BOXES_MAX {
        let (length, kind) = box_at(file, at)?;
        if kind == *b"moov" {
            let begin = read(file, at.saturating_add(BOX_HEAD_BYTES as u64), 256)?;
            return fmp4::movie_duration_ms(&begin).map_err(damaged);
        }
        at = at.checked_add(length.max(BOX_HEAD_BYTES as u64)).ok_or(io::ErrorKind::InvalidData)?;
    }
    Err(io::ErrorKind::InvalidData.into())
}
