//! The header that is checked in is the one of the sources. `MILLSTREAM_HEADER=write` writes it.

use std::path::Path;

#[test]
fn the_header_is_that_of_the_sources() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let config = cbindgen::Config::from_file(root.join("cbindgen.toml")).unwrap();
    let mut made = Vec::new();
    cbindgen::generate_with_config(root, config).unwrap().write(&mut made);
    let made = String::from_utf8(made).unwrap();
    let path = root.join("include/millstream.h");
    if std::env::var_os("MILLSTREAM_HEADER").is_some_and(|value| value == "write") {
        std::fs::write(&path, &made).unwrap();
    }
    assert_eq!(
        std::fs::read_to_string(&path).unwrap_or_default(),
        made,
        "MILLSTREAM_HEADER=write writes it anew"
    );
}
