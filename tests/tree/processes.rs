//! Processes: one file starts them, and its program is this one without rights.

use crate::code;

/// The file that starts processes, and a test that does.
const STARTS: [&str; 2] = ["src/io/jobs/pictures.rs", "src/io/jobs/recordings/power_cuts.rs"];

#[test]
fn u_37_one_file_starts_processes() {
    let starts = |text: &str| text.contains("process::Command") || text.contains("Command::new(");
    let found: Vec<String> =
        code::server().into_iter().filter(|file| starts(&file.text)).map(|file| file.path).collect();
    assert_eq!(found, STARTS);
}
