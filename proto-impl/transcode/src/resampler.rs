//! Conversion of other sample rates to 48 kHz.

use std::fmt;

use rubato::audioadapter_buffers::direct::InterleavedSlice;
use rubato::{Fft, FixedSync, Resampler as _};

use crate::{CHANNELS, Error, SAMPLE_RATE};

/// Sample rates that codecs can have: those that AAC numbers (ISO/IEC 14496-3 table 1.18), which include the rates
/// of MP3 and G.711. Another rate could require very long blocks, of up to seconds.
const RATES: [u32; 13] =
    [96_000, 88_200, 64_000, 48_000, 44_100, 32_000, 24_000, 22_050, 16_000, 12_000, 11_025, 8_000, 7_350];
/// Number of blocks per second. Shorter blocks cause less delay, but lose more of the highest frequencies.
const BLOCKS: u32 = 100;

/// Resampler of interleaved stereo.
pub(crate) struct Resampler {
    fft: Fft<f32>,
    /// Input that does not fill a block yet.
    held: Vec<f32>,
    block: Vec<f32>,
}

impl fmt::Debug for Resampler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Resampler").field("held", &self.held.len()).finish_non_exhaustive()
    }
}

impl Resampler {
    /// Creates a resampler from this rate. Returns `None` if no resampling is needed.
    ///
    /// # Errors
    /// Returns an error if no codec has this rate.
    pub(crate) fn from_rate(rate: u32) -> Result<Option<Self>, Error> {
        if rate == SAMPLE_RATE {
            return Ok(None);
        }
        if !RATES.contains(&rate) {
            return Err(Error::Configuration);
        }
        let size = |number: u32| usize::try_from(number).unwrap_or(0);
        let fft = Fft::new(size(rate), size(SAMPLE_RATE), size(rate / BLOCKS), CHANNELS, FixedSync::Both)
            .map_err(|_| Error::Library)?;
        let block = vec![0.0; fft.output_frames_next() * CHANNELS];
        Ok(Some(Self { fft, held: Vec::new(), block }))
    }

    /// Number of output samples by which the output lags behind the input.
    pub(crate) fn delay(&self) -> usize {
        self.fft.output_delay()
    }

    /// Resamples `samples` and the held input, and appends the output.
    pub(crate) fn process(&mut self, samples: &[f32], out: &mut Vec<f32>) -> Result<(), Error> {
        self.held.extend_from_slice(samples);
        let frames = self.fft.input_frames_next();
        let (block_in, block_out) = (frames * CHANNELS, self.block.len());
        let mut used = 0;
        while let Some(block) = self.held.get(used..used + block_in) {
            let input = InterleavedSlice::new(block, CHANNELS, frames).map_err(|_| Error::Library)?;
            let mut output = InterleavedSlice::new_mut(&mut self.block, CHANNELS, block_out / CHANNELS)
                .map_err(|_| Error::Library)?;
            self.fft.process_into_buffer(&input, &mut output, None).map_err(|_| Error::Library)?;
            out.extend_from_slice(&self.block);
            used += block_in;
        }
        self.held.drain(..used);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rate_of_a_codec_becomes_48_khz_with_a_delay_below_10_ms() {
        for rate in RATES.into_iter().filter(|rate| *rate != SAMPLE_RATE) {
            let mut resampler = Resampler::from_rate(rate).unwrap().unwrap();
            let mut out = Vec::new();
            let second = vec![0.25; usize::try_from(rate).unwrap() * CHANNELS];
            for part in second.chunks(2 * 1024) {
                resampler.process(part, &mut out).unwrap();
            }
            let frames = out.len() / CHANNELS;
            assert!((47_000..=48_000).contains(&frames), "{rate}: {frames}");
            assert!(resampler.delay() <= 480, "{rate}: {}", resampler.delay());
            let middle = out[out.len() / 2];
            assert!((middle - 0.25).abs() < 1e-3, "{rate}: {middle}");
        }
    }

    #[test]
    fn m_20_rates_that_no_codec_has_are_refused() {
        for rate in [0, 1, 44_101, 192_000, 16_777_215, u32::MAX] {
            assert_eq!(Resampler::from_rate(rate).unwrap_err(), Error::Configuration, "{rate}");
        }
        assert!(Resampler::from_rate(48_000).unwrap().is_none());
    }
}
