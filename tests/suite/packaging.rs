//! Release checks: the archive of `make dist`, and the statements of the Dockerfile.

use std::fs;
use std::path::Path;
use std::process::Command;

use super::support::{Home, run};

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

/// Makes the archive with the binary under test, and returns its path.
fn dist(folder: &Path) -> String {
    let mut command = Command::new("sh");
    command.arg("packaging/dist.sh").arg(env!("CARGO_BIN_EXE_millstream")).arg(folder).current_dir(ROOT);
    let (status, out, said) = run(&mut command);
    assert!(status.success(), "{out}{said}");
    out.trim().to_owned()
}

#[test]
fn the_archive_is_whole_and_the_same_each_time() {
    let home = Home::new();
    let archive = dist(home.path());
    let name = Path::new(&archive).file_name().unwrap().to_str().unwrap().to_owned();
    assert!(name.starts_with(concat!("millstream-", env!("CARGO_PKG_VERSION"), "-")), "{name}");
    let mut check = Command::new("sha256sum");
    check.arg("-c").arg(format!("{name}.sha256")).current_dir(home.path());
    let (status, out, said) = run(&mut check);
    assert!(status.success(), "{out}{said}");

    let mut unpack = Command::new("tar");
    assert!(run(unpack.arg("-xzf").arg(&archive).arg("-C").arg(home.path())).0.success());
    let folder = home.path().join(name.strip_suffix(".tar.gz").unwrap());
    for file in [
        "README.md",
        "CHANGELOG.md",
        "LICENSE-APACHE",
        "LICENSE-MIT",
        "packaging/millstream.service",
        "packaging/linux/sysctl.conf",
        "packaging/prometheus/alerts.yml",
        "packaging/grafana/millstream.json",
        "packaging/helm/millstream/values.yaml",
        "packaging/certificates/deploy.sh",
        "packaging/ladder/ladder.sh",
        "licenses/mpegts.js.LICENSE",
        "licenses/fdk-aac.txt",
        "licenses/htm.txt",
        "licenses/jpeg-encoder.txt",
        "licenses/openh264.txt",
        "licenses/opus.txt",
        "licenses/preact.txt",
        "licenses/qrcode-generator.txt",
        "licenses/rapidoc.txt",
        "licenses/symphonia.txt",
    ] {
        assert!(fs::metadata(folder.join(file)).is_ok_and(|file| file.len() > 0), "{file}");
    }
    // The archive contains all pages that its README links to.
    let readme = fs::read_to_string(folder.join("README.md")).unwrap();
    for page in readme.split("](").skip(1).filter_map(|rest| rest.split([')', '#']).next()) {
        assert!(folder.join(page).exists(), "{page}");
    }
    let (status, out, said) = run(Command::new(folder.join("millstream")).arg("--version"));
    assert!(status.success() && out.contains(env!("CARGO_PKG_VERSION")), "{out}{said}");
    let (_, _, said) = run(Command::new("nm").arg(folder.join("millstream")));
    assert!(said.contains("no symbols"), "it is not stripped: {said}");
    // The symbols are in a separate file, under the name that debuggers read from the binary.
    let symbols = name.replace(".tar.gz", ".debug");
    let (status, out, said) = run(Command::new("nm").arg(home.path().join(&symbols)));
    assert!(status.success() && out.contains(" T main"), "{said}");
    let mut link = Command::new("readelf");
    let (_, out, said) = run(link.arg("--string-dump=.gnu_debuglink").arg(folder.join("millstream")));
    assert!(out.contains(&symbols), "{out}{said}");

    let again = Home::new();
    assert_eq!(fs::read(&archive).unwrap(), fs::read(dist(again.path())).unwrap());
}

/// Runs the checks of the image script that need no container engine; `make image-check` runs the others.
#[test]
fn the_dockerfile_fits_the_sources() {
    let check = |root: &Path| {
        let mut command = Command::new("sh");
        run(command.arg("packaging/image.sh").arg("check").env("ENGINE", "false").current_dir(root))
    };
    let (status, out, said) = check(Path::new(ROOT));
    assert!(status.success() && out.contains("NOT CHECKED"), "{out}{said}");

    // With another toolchain in the sources, the check fails.
    let home = Home::new();
    for path in
        ["packaging", "Cargo.toml", "Cargo.lock", "src", "proto-impl", "benches", "tests", ".dockerignore"]
    {
        let to = home.path().join(path);
        if path == "packaging" {
            let copied = run(Command::new("cp").arg("-R").arg(Path::new(ROOT).join(path)).arg(to));
            assert!(copied.0.success());
        } else {
            std::os::unix::fs::symlink(Path::new(ROOT).join(path), to).unwrap();
        }
    }
    fs::write(home.path().join("rust-toolchain.toml"), "[toolchain]\nchannel = \"1.0.0\"\n").unwrap();
    let (status, _, said) = check(home.path());
    assert!(!status.success() && said.contains("Rust 1.0.0"), "{said}");
}
