//! Replays every committed input of every target, and seeded mutations of these inputs. So errors that a fuzzer has
//! found once are found again without a fuzzing toolchain. `FUZZ_MUTATIONS` sets the number of mutations per target,
//! `FUZZ_TARGET` restricts the mutations to one target.

#![forbid(unsafe_code)]

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crypto::{Random, Seed};
use millstream_fuzz::{TARGETS, Target};

/// Targets that are slow, each with the number by which its mutations are divided.
const SLOW: [(&str, u64); 2] = [("segmenter", 3), ("store_recover", 20)];
/// Maximum time for one input. It is long, because it only detects hangs, and the machine may be busy.
const HANG: Duration = Duration::from_secs(5);

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn corpus(name: &str) -> Vec<(PathBuf, Vec<u8>)> {
    let folder = root().join("corpus").join(name);
    let entries = std::fs::read_dir(&folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display()));
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths.into_iter().map(|path| (path.clone(), std::fs::read(path).unwrap())).collect()
}

/// Runs one input. If the target panics, saves and reports the input before the panic continues.
fn run(target: Target, input: &[u8], origin: &str) {
    let start = Instant::now();
    if let Err(panic) = std::panic::catch_unwind(|| target(input)) {
        let path = std::env::temp_dir().join("millstream-fuzz-failure");
        std::fs::write(&path, input).unwrap();
        eprintln!("failed: {origin}; the input is {}", path.display());
        std::panic::resume_unwind(panic);
    }
    assert!(start.elapsed() < HANG, "hang: {origin}");
}

#[test]
fn committed_inputs_do_no_harm() {
    for (name, target) in TARGETS {
        let inputs = corpus(name);
        assert!(!inputs.is_empty(), "{name} has no corpus");
        for (path, input) in inputs {
            run(*target, &input, &path.display().to_string());
        }
        run(*target, &[], name);
    }
}

#[test]
fn mutated_inputs_do_no_harm() {
    let count: u64 = std::env::var("FUZZ_MUTATIONS").ok().and_then(|n| n.parse().ok()).unwrap_or(3000);
    let only = std::env::var("FUZZ_TARGET").ok();
    for (name, target) in TARGETS.iter().filter(|(name, _)| only.as_deref().is_none_or(|only| only == *name))
    {
        let inputs: Vec<Vec<u8>> = corpus(name).into_iter().map(|(_, input)| input).collect();
        let share = SLOW.iter().find(|(slow, _)| slow == name).map_or(1, |(_, share)| *share);
        for number in 0..count / share {
            let mut random = Seed::from_number(number).derive(name, 0).random();
            let mut input = inputs[pick(&mut random, inputs.len())].clone();
            for _ in 0..=random.below(4) {
                mutate(&mut random, &mut input, &inputs);
            }
            run(*target, &input, &format!("{name}, mutation {number}"));
        }
    }
}

#[test]
fn every_target_has_its_binary() {
    let mut binaries: Vec<String> = std::fs::read_dir(root().join("fuzz_targets"))
        .unwrap()
        .map(|entry| entry.unwrap().path().file_stem().unwrap().to_string_lossy().into_owned())
        .collect();
    binaries.sort();
    assert_eq!(binaries, TARGETS.iter().map(|(name, _)| (*name).to_owned()).collect::<Vec<_>>());
}

fn pick(random: &mut Random, below: usize) -> usize {
    usize::try_from(random.below(below as u64)).unwrap()
}

/// Applies one change: flips a bit; replaces a byte; removes, repeats or inserts bytes; replaces the end with the end
/// of another input; or cuts off the end.
fn mutate(random: &mut Random, input: &mut Vec<u8>, inputs: &[Vec<u8>]) {
    let at = pick(random, input.len() + 1);
    let end = (at + 1 + pick(random, 8)).min(input.len());
    match random.below(7) {
        0 if at < input.len() => input[at] ^= 1 << random.below(8),
        1 if at < input.len() => input[at] = [0, 1, 0x7f, 0x80, 0xff, b'\r', b'\n', b' '][pick(random, 8)],
        2 => drop(input.drain(at.min(end)..end)),
        3 => {
            let repeated = input[at.min(end)..end].to_vec();
            input.splice(at..at, repeated);
        }
        4 => {
            let mut noise = vec![0; 1 + pick(random, 8)];
            random.fill(&mut noise);
            input.splice(at..at, noise);
        }
        5 => {
            let other = &inputs[pick(random, inputs.len())];
            input.truncate(at);
            input.extend_from_slice(&other[pick(random, other.len() + 1)..]);
        }
        _ => input.truncate(at),
    }
    input.truncate(1 << 16);
}
