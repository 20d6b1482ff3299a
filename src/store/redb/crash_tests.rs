//! Simulates a power loss at every write and every sync of a series of commits, and again at every write and sync of
//! the recovery (docs/robustness.md B-02, B-03). Afterwards, acknowledged commits must be complete. A commit that was
//! in progress must be either complete or absent.

use std::sync::{Arc, Mutex};

use ::redb::StorageBackend;
use crypto::{Random, Seed};

use super::*;

/// Number of bytes that a disk writes completely or not at all.
const SECTOR: usize = 512;

/// Returns all records of a store.
fn all_of(path: &Path, database: &Database) -> Vec<(Key, Bytes)> {
    let mut all = Vec::new();
    read_all(path, database, &mut |key, bytes| all.push((key, bytes))).expect("whole");
    all
}

#[derive(Debug, Clone)]
enum Step {
    Write(usize, Vec<u8>),
    Length(usize),
    Sync,
}

/// A simulated disk that records its steps.
#[derive(Debug, Clone)]
struct Disk(Arc<Mutex<(Vec<u8>, Vec<Step>)>>);

impl Disk {
    fn new(image: Vec<u8>) -> Self {
        Self(Arc::new(Mutex::new((image, Vec::new()))))
    }

    fn steps(&self) -> Vec<Step> {
        self.0.lock().unwrap().1.clone()
    }

    fn done(&self, step: Step) {
        let (image, steps) = &mut *self.0.lock().unwrap();
        if !matches!(step, Step::Sync) {
            apply(image, &step);
        }
        steps.push(step);
    }
}

impl StorageBackend for Disk {
    fn len(&self) -> io::Result<u64> {
        Ok(self.0.lock().unwrap().0.len() as u64)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let at = usize::try_from(offset).unwrap();
        let part = at
            .checked_add(out.len())
            .and_then(|end| self.0.lock().unwrap().0.get(at..end).map(<[u8]>::to_vec));
        out.copy_from_slice(&part.ok_or(io::ErrorKind::UnexpectedEof)?);
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.done(Step::Length(usize::try_from(len).unwrap()));
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        self.done(Step::Sync);
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.done(Step::Write(usize::try_from(offset).unwrap(), data.to_vec()));
        Ok(())
    }
}

fn apply(image: &mut Vec<u8>, step: &Step) {
    match step {
        Step::Write(at, data) => {
            let end = at + data.len();
            if image.len() < end {
                image.resize(end, 0);
            }
            image[*at..end].copy_from_slice(data);
        }
        Step::Length(length) => image.resize(*length, 0),
        Step::Sync => {}
    }
}

/// Returns the disk's contents after a power loss. Each sector that was not synced may or may not have been written,
/// and the old length may remain.
fn after_power_loss(mut image: Vec<u8>, unsynced: &[Step], random: &mut Random) -> Vec<u8> {
    // No sectors, all sectors, or each at random: the extreme cases must occur, too.
    let mood = random.below(4);
    let mut arrives = || match mood {
        0 => false,
        1 => true,
        _ => random.below(2) == 0,
    };
    for step in unsynced {
        match step {
            Step::Write(at, data) => {
                for (index, sector) in data.chunks(SECTOR).enumerate() {
                    let at = at + index * SECTOR;
                    // Writing a sector beyond the end extends the file.
                    if arrives() {
                        apply(&mut image, &Step::Write(at, sector.to_vec()));
                    }
                }
            }
            Step::Length(_) if arrives() => apply(&mut image, step),
            Step::Length(_) | Step::Sync => {}
        }
    }
    image
}

/// A disk at a step: its image as of the last sync, and the steps that were not synced yet.
struct Powerless<'a> {
    synced: Vec<u8>,
    steps: &'a [Step],
    from: usize,
}

impl<'a> Powerless<'a> {
    fn new(image: Vec<u8>, steps: &'a [Step]) -> Self {
        Self { synced: image, steps, from: 0 }
    }

    /// Returns the disk's contents if the power is lost after `done` steps. `done` must increase from call to call.
    fn at(&mut self, done: usize, random: &mut Random) -> Vec<u8> {
        if let Some(sync) = self.steps[self.from..done].iter().rposition(|step| matches!(step, Step::Sync)) {
            let to = self.from + sync + 1;
            self.steps[self.from..to].iter().for_each(|step| apply(&mut self.synced, step));
            self.from = to;
        }
        after_power_loss(self.synced.clone(), &self.steps[self.from..done], random)
    }
}

type Records = Vec<(Key, Bytes)>;

/// Opens a disk as the store does at the start. Returns the records and the steps taken.
fn recovered(image: Vec<u8>) -> (Records, Vec<Step>) {
    let disk = Disk::new(image);
    let path = Path::new("disk");
    let mut database =
        Database::builder().set_cache_size(CACHE_BYTES).create_with_backend(disk.clone()).expect("opens");
    assert!(database.check_integrity().expect("can be checked"), "checksums");
    let records = all_of(path, &database);
    drop(database);
    (records, disk.steps())
}

/// Makes a series of commits on a new store. Returns the initial image and all steps. For each commit, also returns
/// the number of steps made when it was acknowledged, and the records at that time.
fn history(commits: usize, random: &mut Random) -> (Vec<u8>, Vec<Step>, Vec<(usize, Records)>) {
    let path = Path::new("disk");
    let disk = Disk::new(Vec::new());
    let database = Database::builder().set_cache_size(CACHE_BYTES).create_with_backend(disk.clone()).unwrap();
    write_ops(path, &database, &[]).unwrap();
    let first = std::mem::take(&mut disk.0.lock().unwrap().1);
    let mut image = Vec::new();
    first.iter().for_each(|step| apply(&mut image, step));
    let mut acknowledged = vec![(0, Vec::new())];
    let mut records = std::collections::BTreeMap::new();
    for _ in 0..commits {
        let count = 1 + random.below(5);
        let ops: Vec<Op> = (0..count)
            .map(|_| {
                let kind = Kind::ALL[usize::try_from(random.below(4)).unwrap()];
                let key = Key::new(kind, "live", &format!("id{}", random.below(30)));
                let bytes = vec![
                    u8::try_from(random.below(256)).unwrap();
                    usize::try_from(random.below(3000)).unwrap()
                ];
                if random.below(4) == 0 { Op::Delete(key) } else { Op::Put(key, bytes.into()) }
            })
            .collect();
        for op in &ops {
            match op {
                Op::Put(key, bytes) => drop(records.insert(key.clone(), bytes.clone())),
                Op::Delete(key) => drop(records.remove(key)),
            }
        }
        write_ops(path, &database, &ops).unwrap();
        let now = records.iter().map(|(key, bytes)| (key.clone(), bytes.clone())).collect();
        acknowledged.push((disk.steps().len(), now));
    }
    let steps = disk.steps();
    (image, steps, acknowledged)
}

/// Checks the records that are found if the power was lost after `done` steps.
fn assert_kept(found: &Records, acknowledged: &[(usize, Records)], done: usize, place: &str) {
    let last = acknowledged.partition_point(|(at, _)| *at <= done) - 1;
    let under_way = acknowledged.get(last + 1);
    let kept = *found == acknowledged[last].1 || under_way.is_some_and(|(_, records)| found == records);
    assert!(kept, "{place}: not the records of commit {last} or the one after it");
}

#[test]
fn b_02_the_power_goes_at_every_write_and_sync() {
    let mut random = Seed::from_number(2).derive("disk", 0).random();
    let (image, steps, acknowledged) = history(170, &mut random);
    assert!(steps.len() > 500, "{} steps", steps.len());
    let mut disk = Powerless::new(image, &steps);
    for done in 0..=steps.len() {
        for _ in 0..2 {
            let (found, _) = recovered(disk.at(done, &mut random));
            assert_kept(&found, &acknowledged, done, &format!("step {done}"));
        }
    }
}

#[test]
fn b_03_and_again_at_every_point_of_the_recovery() {
    let mut random = Seed::from_number(3).derive("disk", 0).random();
    let (image, steps, acknowledged) = history(40, &mut random);
    let mut disk = Powerless::new(image, &steps);
    let mut points = 0;
    for done in 0..=steps.len() {
        let damaged = disk.at(done, &mut random);
        let (_, recovery) = recovered(damaged.clone());
        let mut again = Powerless::new(damaged, &recovery);
        for step in 0..=recovery.len() {
            let (found, _) = recovered(again.at(step, &mut random));
            assert_kept(&found, &acknowledged, done, &format!("step {done}, step {step} of its recovery"));
            points += 1;
        }
    }
    assert!(points > steps.len(), "a recovery writes");
}

#[test]
fn b_02_a_start_after_a_crash_need_not_look_at_the_whole_file() {
    let path = Path::new("disk");
    let disk = Disk::new(Vec::new());
    let database = Database::builder().set_cache_size(CACHE_BYTES).create_with_backend(disk.clone()).unwrap();
    for n in 0..20_u8 {
        let key = Key::new(Kind::Broadcast, "live", &n.to_string());
        write_ops(path, &database, &[Op::Put(key, Bytes::from(vec![n; 1000]))]).unwrap();
        // Copy the disk while the database is open, as a crash would leave it.
        let image = disk.0.lock().unwrap().0.clone();
        let again = Database::builder()
            .set_repair_callback(|_| panic!("a repair"))
            .create_with_backend(Disk::new(image))
            .expect("opens");
        assert_eq!(all_of(path, &again).len(), usize::from(n) + 1);
    }
}
