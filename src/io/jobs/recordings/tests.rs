use std::fs;
use std::os::fd::BorrowedFd;

use fmp4::{Description, Event, Fragment, FragmentSample, Limits, Reader, recording_head};
use media::Timescale;
use media::codec::{Codec, CodecConfig};

use crate::tests::TempFolder;

use super::*;

const ROOM: u32 = 64 << 10;

/// Returns a recorded file with `fragments` fragments, as its sink leaves it.
pub(super) fn recorded(fragments: u32) -> Vec<u8> {
    recorded_with(fragments, ROOM).concat()
}

/// Returns a recorded file in pieces: first its head and `room` bytes, then each fragment.
pub(super) fn recorded_with(fragments: u32, room: u32) -> Vec<Vec<u8>> {
    let config = CodecConfig::read(Codec::Aac, Bytes::from_static(&[0x11, 0x90])).unwrap().unwrap();
    let track = Description::new(1, config, Timescale::new(48_000));
    let mut file = vec![recording_head(std::slice::from_ref(&track), room).unwrap().to_vec()];
    for sequence in 1..=fragments {
        let mut fragment = Fragment::new(sequence);
        let sample = |n: u32| FragmentSample {
            duration: 1024,
            composition: 0,
            key_frame: true,
            payload: Bytes::from(format!("sound {sequence} {n}").repeat(1 + n as usize % 3)),
            subsamples: Vec::new(),
        };
        fragment.add(&track, u64::from(sequence - 1) * 24 * 1024, (0..24).map(sample).collect());
        file.push(fragment.write().unwrap().concat());
    }
    file
}

/// Returns time and payload of each sample, as a reader finds them.
pub(super) fn read_samples(file: &[u8]) -> Result<Vec<(i64, Bytes)>, fmp4::Error> {
    let mut reader = Reader::new(Limits::default());
    let mut input = file;
    let mut found = Vec::new();
    while let Some(event) = reader.read(&mut input)? {
        if let Event::Sample(sample) = event {
            found.push((sample.dts, sample.payload));
        }
    }
    reader.finish()?;
    Ok(found)
}

/// Returns the samples of a whole file.
pub(super) fn samples(file: &[u8]) -> Vec<(i64, Bytes)> {
    read_samples(file).unwrap()
}

pub(super) fn refuse(_: BorrowedFd<'_>, _: u64, _: u64) -> io::Result<()> {
    Err(io::Error::from_raw_os_error(libc::EOPNOTSUPP))
}

struct Folder(TempFolder);

impl Folder {
    fn new(unfinished: &[u8]) -> Self {
        let root = TempFolder::new();
        fs::create_dir_all(root.join("live/streams")).unwrap();
        fs::write(root.join("live/streams/a.mp4.tmp_extension"), unfinished).unwrap();
        Self(root)
    }

    fn path() -> Vec<String> {
        ["live", "streams", "a.mp4"].map(str::to_owned).to_vec()
    }

    fn finish(&self, insert: Insert) -> Option<Finished> {
        match finish(&self.0, &Self::path(), insert).unwrap() {
            Finish::Done(finished) => Some(finished),
            Finish::Nothing => None,
            Finish::SetAside(name) => panic!("{name} is set aside"),
        }
    }

    fn read(&self) -> Vec<u8> {
        fs::read(self.0.join("live/streams/a.mp4")).unwrap()
    }

    fn names(&self) -> Vec<String> {
        let entries = fs::read_dir(self.0.join("live/streams")).unwrap();
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }
}

fn is_index_first(file: &[u8]) -> bool {
    let from = u32::from_be_bytes(file[..4].try_into().unwrap()) as usize;
    &file[from + 4..from + 8] == b"moov"
}

#[test]
fn a_recording_becomes_a_plain_file_with_its_index_first() {
    // There are three cases: the index fits the existing room, the file system inserts room for it,
    // or the file is copied.
    for (fragments, insert) in
        [(3, sys::insert_range as Insert), (1500, sys::insert_range), (1500, refuse), (0, refuse)]
    {
        let file = recorded(fragments);
        let folder = Folder::new(&file);
        let finished = folder.finish(insert);
        if fragments == 0 {
            assert!(finished.is_none() && folder.names().is_empty());
            continue;
        }
        let finished = finished.unwrap();
        assert_eq!(folder.names(), ["a.mp4"]);
        let plain = folder.read();
        assert_eq!((finished.bytes, is_index_first(&plain)), (plain.len() as u64, true));
        assert_eq!(finished.duration_ms, Some(u64::from(fragments) * 24 * 1024 * 1000 / 48_000));
        assert!(samples(&plain) == samples(&file), "{fragments}");
    }
}

#[test]
fn a_crash_in_any_step_is_gone_on_from() {
    let file = recorded(1500);
    let expected = samples(&file);
    let check = |folder: &Folder, what: &str| {
        assert!(folder.finish(sys::insert_range).is_some(), "{what}");
        assert!(samples(&folder.read()) == expected && folder.names() == ["a.mp4"], "{what}");
    };
    let room = ROOM as usize;
    // The last fragment is torn.
    let torn = [&file[..], &recorded(1)[room..][..900]].concat();
    check(&Folder::new(&torn), "torn");
    // Room was inserted. In the first case, the `free` box does not cover it yet; in the second, it
    // does.
    let gap = [&file[..4096], &[0; 262_144], &file[4096..]].concat();
    check(&Folder::new(&gap), "gap");
    let mut told = gap.clone();
    let from = u32::from_be_bytes(file[..4].try_into().unwrap()) as usize;
    told[from..from + 4].copy_from_slice(&u32::try_from(room + 262_144 - from).unwrap().to_be_bytes());
    check(&Folder::new(&told), "told");
    // First the index is there but not valid yet. Then it is valid, but the file does not have its
    // final name yet.
    let folder = Folder::new(&file);
    folder.finish(sys::insert_range).unwrap();
    let plain = folder.read();
    let mut almost = plain.clone();
    almost[from..from + 8].copy_from_slice(&told[from..from + 8]);
    let grown = plain.len() - file.len() + room - from;
    almost[from..from + 4].copy_from_slice(&u32::try_from(grown).unwrap().to_be_bytes());
    check(&Folder::new(&almost), "almost");
    check(&Folder::new(&plain), "plain");
    // A copy was begun but not completed. When the file is finished again, it gets its final name.
    let folder = Folder::new(&file);
    fs::write(folder.0.join("live/streams/a.mp4.tmp_copy"), vec![7; 9_000_000]).unwrap();
    assert!(folder.finish(refuse).is_some() && folder.names() == ["a.mp4"]);
    // The copy has replaced the fragmented file but does not have its final name yet.
    fs::rename(folder.0.join("live/streams/a.mp4"), folder.0.join("live/streams/a.mp4.tmp_extension"))
        .unwrap();
    assert!(folder.finish(refuse).is_some() && folder.names() == ["a.mp4"]);
    let before = folder.read();
    assert!(folder.finish(refuse).is_some(), "it is finished already");
    assert!(folder.read() == before && samples(&before) == expected);
}

#[test]
fn an_upload_gets_its_name_whatever_is_in_it() {
    let folder = Folder::new(&recorded(3));
    folder.finish(sys::insert_range);
    let plain = folder.read();
    for (content, duration_ms) in
        [(&plain[..], Some(3 * 24 * 1024 * 1000 / 48_000)), (b"no film", None), (b"", None)]
    {
        let folder = Folder::new(content);
        let finished = adopt(&folder.0, &Folder::path()).unwrap();
        assert_eq!(finished, Finished { bytes: content.len() as u64, duration_ms });
        assert!(folder.read() == content && folder.names() == ["a.mp4"]);
        assert!(adopt(&folder.0, &Folder::path()).is_err(), "there is none any more");
    }
    let folder = Folder::new(b"new");
    std::os::unix::fs::symlink("/etc/passwd", folder.0.join("live/streams/a.mp4")).unwrap();
    assert!(adopt(&folder.0, &Folder::path()).is_err(), "nothing is overwritten");
}

#[test]
fn a_file_that_is_cut_anywhere_is_finished_or_empty() {
    let file = recorded(3);
    let (room, whole) = (ROOM as usize, samples(&file).len());
    let cuts = (0..64).chain((room - 64..file.len()).step_by(7));
    let mut found = Vec::new();
    for cut in cuts {
        let folder = Folder::new(&file[..cut]);
        found.push(match folder.finish(refuse) {
            Some(finished) => {
                assert!(finished.bytes > 0 && folder.names() == ["a.mp4"], "{cut}");
                samples(&folder.read()).len()
            }
            None => {
                assert!(folder.names().is_empty(), "{cut}");
                0
            }
        });
    }
    found.dedup();
    assert_eq!(found, [0, whole / 3, whole / 3 * 2]);
}

#[test]
fn unfinished_recordings_are_found_wherever_they_are() {
    let folder = Folder::new(&recorded(1));
    let streams = folder.0.join("live/streams");
    fs::create_dir_all(streams.join("a/b")).unwrap();
    fs::write(streams.join("a/b/c.mp4.tmp_extension"), "").unwrap();
    fs::write(streams.join("whole.mp4"), "").unwrap();
    fs::write(folder.0.join("live/x.mp4.tmp_extension"), "").unwrap();
    std::os::unix::fs::symlink("a.mp4.tmp_extension", streams.join("link.mp4.tmp_extension")).unwrap();
    std::os::unix::fs::symlink("a", streams.join("folder")).unwrap();
    fs::create_dir_all(folder.0.join("other")).unwrap();
    std::os::unix::fs::symlink(&streams, folder.0.join("other/streams")).unwrap();
    let apps = ["live", "other", "none"].map(str::to_owned).to_vec();
    let RecordingOutcome::Found(found) = run(&folder.0, &RecordingWork::Find { apps }) else { panic!() };
    let mut found: Vec<_> = found.iter().map(|path| path.join("/")).collect();
    found.sort();
    assert_eq!(found, ["live/streams/a.mp4", "live/streams/a/b/c.mp4"]);
}

#[test]
fn what_is_there_is_not_overwritten_and_what_is_gone_is_no_fault() {
    let folder = Folder::new(&recorded(2));
    fs::write(folder.0.join("live/streams/a.mp4"), "somebody's").unwrap();
    assert!(finish(&folder.0, &Folder::path(), refuse).is_err());
    assert_eq!(folder.read(), b"somebody's");
    remove(&folder.0, &Folder::path()).unwrap();
    assert!(folder.names().is_empty());
    remove(&folder.0, &Folder::path()).unwrap();
    assert!(folder.finish(refuse).is_none());
    let nowhere = ["live", "gone", "a.mp4"].map(str::to_owned);
    assert!(matches!(finish(&folder.0, &nowhere, refuse).unwrap(), Finish::Nothing));
}

#[test]
fn b_16_what_is_no_recording_is_set_aside_and_never_deleted() {
    let whole = recorded(3);
    let room = ROOM as usize;
    let torn = u64::from(u32::MAX).to_be_bytes();
    let long = [&recorded(2)[..], &vec![7; 33 << 20]].concat();
    let cases: [(&str, Vec<u8>); 6] = [
        ("junk in front", [&[0xab; 512][..], &whole].concat()),
        ("one byte in front", [&[7][..], &whole].concat()),
        ("text", b"somebody's notes".repeat(300)),
        ("junk behind the head", [&whole[..room], &[0xff; 4096][..]].concat()),
        ("a long rest", long),
        ("a first fragment that lies", [&whole[..room], &torn[4..], b"moof", &vec![9; 33 << 20]].concat()),
    ];
    for (what, file) in cases {
        for name in ["a.mp4", "a.webm"] {
            let folder = Folder::new(&[]);
            let streams = folder.0.join("live/streams");
            fs::remove_file(streams.join("a.mp4.tmp_extension")).unwrap();
            let path = ["live", "streams", name].map(str::to_owned).to_vec();
            for nth in 0..2 {
                fs::write(streams.join(format!("{name}.tmp_extension")), &file).unwrap();
                let aside = format!("{name}{}.damaged", if nth == 0 { "" } else { ".1" });
                let outcome = run(&folder.0, &RecordingWork::Finish { path: path.clone() });
                assert_eq!(outcome, RecordingOutcome::SetAside(aside.clone()), "{what}, {name}");
                assert!(fs::read(streams.join(aside)).unwrap() == file, "{what}, {name}");
            }
            assert_eq!(folder.names().len(), 2, "{what}, {name}");
        }
    }
    // A file that a power cut has left as zeros contains nothing.
    for zeros in [0, 1, 4096, 3 << 20] {
        assert!(Folder::new(&vec![0; zeros]).finish(refuse).is_none(), "{zeros}");
    }
}
