//! Processes: two files start them. Their program is this one, without rights or as its own successor.

use crate::code;

/// The files that start processes; the second is a test.
const STARTS: [&str; 3] =
    ["src/io/jobs/pictures.rs", "src/io/jobs/recordings/power_cuts.rs", "src/io/upgrade/mod.rs"];

#[test]
fn u_37_few_files_start_processes() {
    let starts = |text: &str| text.contains("process::Command") || text.contains("Command::new(");
    let found: Vec<String> =
        code::server().into_iter().filter(|file| starts(&file.text)).map(|file| file.path).collect();
    assert_eq!(found, STARTS);
}
