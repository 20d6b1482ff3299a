//! WebM files, as the finisher of recordings reads them.

use bytes::Bytes;
use webm::{Indexed, Indexer, duration_ms, finish, is_finished};

use crate::splits::INPUT_MAX;

/// Indexes a recorded file as a crash may have left it. The indexer must use only the bytes that it requested, and
/// its results must lie within the file. After each step of finishing the file, an indexer must return the same
/// results; after the last step the file must be finished.
pub fn webm_index(data: &[u8]) {
    let file = data.get(..INPUT_MAX).unwrap_or(data);
    let _ = duration_ms(file);
    let Some(indexed) = index(file) else { return };
    let end = usize::try_from(indexed.end).expect("within the file");
    let mut file = file.get(..end).expect("within the file").to_vec();
    let Ok(steps) = finish(&indexed) else { return };
    for step in steps {
        for patch in step {
            let at = usize::try_from(patch.at).expect("in the file, or at its end");
            assert!(at <= file.len(), "no gaps");
            let end = at + patch.bytes.len();
            file.resize(file.len().max(end), 0);
            file[at..end].copy_from_slice(&patch.bytes);
        }
        let again = index(&file).expect("what was there");
        assert_eq!((again.end, again.duration_ms), (indexed.end, indexed.duration_ms));
    }
    assert!(is_finished(&file, file.len() as u64));
}

fn index(file: &[u8]) -> Option<Indexed> {
    let mut indexer = Indexer::new(file.len() as u64);
    let mut asked = 0;
    while let Some((offset, length)) = indexer.wanted() {
        asked += 1;
        // Each element has at least two bytes, which limits the number of reads.
        assert!(asked <= file.len() / 2 + 16, "it does not go on");
        let at = usize::try_from(offset).unwrap_or(usize::MAX).min(file.len());
        let end = at.saturating_add(length).min(file.len());
        indexer.take(&Bytes::copy_from_slice(&file[at..end])).ok()?;
    }
    indexer.finish().ok()
}
