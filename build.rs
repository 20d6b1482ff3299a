//! The commit that is built, and its date, for `types::build`: of the environment (`BUILD_COMMIT`, `BUILD_DATE`: an archive
//! has no repository), else of git, else `unknown`. A debug build asks git once, so that a commit does not build everything again.
//! And the built-in pages in gzip, so that nobody compresses them while the server runs.

#![allow(clippy::print_stdout, reason = "this is how a build script speaks to cargo")]

use std::io::Write;
use std::path::Path;
use std::process::Command;
use std::{env, fs};

use flate2::Compression;
use flate2::write::GzEncoder;

/// Output of a git command; `None`: there is no repository, or no git.
fn git(arguments: &[&str]) -> Option<String> {
    let output =
        Command::new("git").args(arguments).output().ok().filter(|output| output.status.success())?;
    let text = String::from_utf8(output.stdout).ok()?;
    Some(text.trim().to_owned()).filter(|text| !text.is_empty())
}

/// Folders whose pages are sent in gzip.
const PAGES: [&str; 4] =
    ["panel", "panel/vendor", "src/protocol/http/pages", "src/protocol/http/pages/vendor"];
/// Endings of their names.
const PAGE_ENDINGS: [&str; 4] = ["html", "js", "css", "svg"];
/// Bytes of the shortest page that is compressed (`http::coding`).
const PAGE_BYTES_MIN: usize = 1 << 10;

/// FNV-1a, as `protocol::http::pages` has it.
fn hash(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193))
}

/// Writes each page in gzip beside a list of them: length and hash of the page, and the content.
fn pack_pages(out: &Path) -> std::io::Result<()> {
    let mut list = String::from("&[\n");
    for (folder, at) in PAGES.iter().zip(0..) {
        println!("cargo::rerun-if-changed={folder}");
        let mut files: Vec<_> = fs::read_dir(folder)?.flatten().map(|entry| entry.path()).collect();
        files.sort();
        for file in files {
            let is_page = file.extension().is_some_and(|end| PAGE_ENDINGS.iter().any(|known| end == *known));
            let page = if is_page { fs::read(&file)? } else { Vec::new() };
            if page.len() < PAGE_BYTES_MIN {
                continue;
            }
            let mut encoder = GzEncoder::new(Vec::new(), Compression::best());
            encoder.write_all(&page)?;
            let packed = encoder.finish()?;
            let name = file.file_name().unwrap_or_default().to_string_lossy().into_owned();
            let target = out.join(format!("{at}-{name}.gz"));
            fs::write(&target, packed)?;
            list.push_str(&format!(
                "    ({}, {:#x}, include_bytes!({target:?})),\n",
                page.len(),
                hash(&page)
            ));
        }
    }
    list.push_str("]\n");
    fs::write(out.join("packed_pages.rs"), list)
}

fn main() -> std::io::Result<()> {
    println!("cargo::rerun-if-changed=build.rs");
    pack_pages(Path::new(&env::var("OUT_DIR").unwrap_or_default()))?;
    let values = [
        ("BUILD_COMMIT", &["describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"][..]),
        ("BUILD_DATE", &["show", "--no-patch", "--date=format:%Y-%m-%d", "--format=%cd", "HEAD"]),
    ];
    for (name, arguments) in values {
        println!("cargo::rerun-if-env-changed={name}");
        let given = env::var(name).ok().filter(|value| !value.is_empty());
        let value = given.or_else(|| git(arguments)).unwrap_or_else(|| "unknown".to_owned());
        println!("cargo::rustc-env={name}={value}");
    }
    if env::var("PROFILE").as_deref() == Ok("release")
        && let Some(log) = git(&["rev-parse", "--git-path", "logs/HEAD"])
    {
        println!("cargo::rerun-if-changed={log}");
    }
    Ok(())
}
