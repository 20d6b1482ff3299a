//! Scales planes of 4:2:0 down to a small RGB picture: each pixel is the mean of the source pixels that it
//! covers.

/// The planes of a decoded picture, with limited range.
#[derive(Debug)]
pub(crate) struct Planes<'a> {
    /// Width and height.
    pub(crate) size: (usize, usize),
    /// Luma.
    pub(crate) luma: &'a [u8],
    /// Cb and Cr, half as wide and high.
    pub(crate) chroma: (&'a [u8], &'a [u8]),
    /// Distance from one row to the next in each plane, in bytes.
    pub(crate) strides: (usize, usize, usize),
    /// True for the coefficients of ITU-R BT.709, false for those of BT.601.
    pub(crate) is_hd: bool,
}

/// A scaled RGB picture.
#[derive(Debug)]
pub(crate) struct Small {
    pub(crate) width: u16,
    pub(crate) height: u16,
    pub(crate) rgb: Vec<u8>,
}

/// Coefficients of a conversion to RGB, times 2^16: luma, red of Cr, green of Cb and Cr, blue of Cb.
struct Matrix {
    luma: i32,
    red: i32,
    green: (i32, i32),
    blue: i32,
}

const BT_601: Matrix = Matrix { luma: 76_309, red: 104_597, green: (25_675, 53_279), blue: 132_201 };
const BT_709: Matrix = Matrix { luma: 76_309, red: 117_489, green: (13_975, 34_925), blue: 138_438 };

/// Returns the largest size with the proportions of `from` that exceeds neither `max` (0: no limit) nor
/// `from`.
#[must_use]
pub fn fit(from: (usize, usize), max: (usize, usize)) -> (usize, usize) {
    let (width, height) = (from.0.max(1), from.1.max(1));
    let limit = |side: usize, max: usize| if max == 0 { side } else { side.min(max) };
    let (most_wide, most_high) = (limit(width, max.0), limit(height, max.1));
    let scaled = |side: usize, to: usize, of: usize| {
        let rounded = side.saturating_mul(to).saturating_add(of / 2).checked_div(of);
        rounded.unwrap_or(1).max(1)
    };
    if most_wide.saturating_mul(height) <= most_high.saturating_mul(width) {
        (most_wide, scaled(height, most_wide, width).min(most_high))
    } else {
        (scaled(width, most_high, height).min(most_wide), most_high)
    }
}

/// Makes a picture of this size. `None` if the planes are shorter than their dimensions require.
pub(crate) fn small(planes: &Planes<'_>, to: (usize, usize)) -> Option<Small> {
    let (width, height) = planes.size;
    let half = (width.div_ceil(2), height.div_ceil(2));
    let luma = shrink(planes.luma, planes.strides.0, planes.size, to)?;
    // If a dimension is odd, a decoder may leave out the last half pixel of the chroma planes.
    let of_chroma = |plane: &[u8], stride: usize| {
        let floor = ((width / 2).max(1), (height / 2).max(1));
        shrink(plane, stride, half, to).or_else(|| shrink(plane, stride, floor, to))
    };
    let cb = of_chroma(planes.chroma.0, planes.strides.1)?;
    let cr = of_chroma(planes.chroma.1, planes.strides.2)?;
    let matrix = if planes.is_hd { BT_709 } else { BT_601 };
    let mut rgb = Vec::with_capacity(luma.len().saturating_mul(3));
    for ((y, cb), cr) in luma.iter().zip(&cb).zip(&cr) {
        rgb.extend_from_slice(&matrix.rgb(*y, *cb, *cr));
    }
    Some(Small { width: u16::try_from(to.0).ok()?, height: u16::try_from(to.1).ok()?, rgb })
}

impl Matrix {
    fn rgb(&self, y: u8, cb: u8, cr: u8) -> [u8; 3] {
        let luma = (i32::from(y) - 16) * self.luma;
        let (cb, cr) = (i32::from(cb) - 128, i32::from(cr) - 128);
        let byte =
            |value: i32| u8::try_from((value + (1 << 15)) >> 16).unwrap_or(if value < 0 { 0 } else { 255 });
        [
            byte(luma + cr * self.red),
            byte(luma - cb * self.green.0 - cr * self.green.1),
            byte(luma + cb * self.blue),
        ]
    }
}

/// Scales a plane down. Each row of the result is summed column by column first, which is fast.
fn shrink(plane: &[u8], stride: usize, from: (usize, usize), to: (usize, usize)) -> Option<Vec<u8>> {
    let mut made = Vec::with_capacity(to.0.checked_mul(to.1)?);
    let mut sums = vec![0_u32; from.0];
    for row in 0..to.1 {
        let (top, bottom) = span(row, from.1, to.1)?;
        sums.fill(0);
        for line in top..bottom {
            let start = line.checked_mul(stride)?;
            let line = plane.get(start..start.checked_add(from.0)?)?;
            sums.iter_mut().zip(line).for_each(|(sum, pixel)| *sum += u32::from(*pixel));
        }
        let rows = bottom - top;
        for column in 0..to.0 {
            let (left, right) = span(column, from.0, to.0)?;
            let sum: u32 = sums.get(left..right)?.iter().sum();
            let count = u32::try_from((right - left).checked_mul(rows)?).ok()?;
            made.push(u8::try_from((sum + count / 2).checked_div(count)?).ok()?);
        }
    }
    Some(made)
}

/// Returns the range of source pixels that a pixel covers: the first, and the end. The range has at least
/// one pixel.
fn span(at: usize, from: usize, to: usize) -> Option<(usize, usize)> {
    let start = at.checked_mul(from)?.checked_div(to)?;
    let end = at.checked_add(1)?.checked_mul(from)?.checked_div(to)?;
    Some((start, end.max(start.checked_add(1)?)))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_picture_keeps_its_proportions_and_is_never_made_larger() {
        for (from, max, wanted) in [
            ((1920, 1080), (320, 480), (320, 180)),
            ((1920, 1080), (0, 480), (853, 480)),
            ((1080, 1920), (320, 480), (270, 480)),
            ((1080, 1920), (320, 0), (320, 569)),
            ((160, 90), (320, 480), (160, 90)),
            ((4096, 16), (320, 480), (320, 1)),
            ((1920, 1080), (0, 0), (1920, 1080)),
        ] {
            assert_eq!(fit(from, max), wanted, "{from:?} in {max:?}");
        }
    }

    #[test]
    fn the_colours_are_those_of_the_standards() {
        // Primary colours in limited range, by ITU-R BT.601 and by BT.709.
        for (is_hd, ycc, rgb) in [
            (false, (16, 128, 128), [0, 0, 0]),
            (false, (235, 128, 128), [255, 255, 255]),
            (false, (81, 90, 240), [254, 0, 0]),
            (true, (63, 102, 240), [255, 1, 0]),
            (true, (32, 240, 118), [1, 0, 255]),
        ] {
            let planes = Planes {
                size: (2, 2),
                luma: &[ycc.0; 4],
                chroma: (&[ycc.1], &[ycc.2]),
                strides: (2, 1, 1),
                is_hd,
            };
            let made = small(&planes, (1, 1)).unwrap();
            let is_near = made.rgb.iter().zip(rgb).all(|(got, wanted)| got.abs_diff(wanted) <= 2);
            assert!(is_near, "{ycc:?}: {:?} is not {rgb:?}", made.rgb);
        }
    }

    #[test]
    fn a_pixel_is_the_mean_of_those_it_stands_for() {
        let plane = [10, 20, 99, 30, 40, 99];
        assert_eq!(shrink(&plane, 3, (2, 2), (1, 1)), Some(vec![25]));
        assert_eq!(shrink(&plane, 3, (2, 2), (2, 1)), Some(vec![20, 30]));
        assert_eq!(shrink(&plane[..4], 3, (2, 2), (1, 1)), None, "shorter than its size");
    }

    proptest! {
        #[test]
        fn any_size_fits(from in (1_usize..5000, 1_usize..5000), max in (0_usize..2000, 0_usize..2000)) {
            let (width, height) = fit(from, max);
            prop_assert!(width >= 1 && height >= 1 && width <= from.0 && height <= from.1);
            prop_assert!((max.0 == 0 || width <= max.0) && (max.1 == 0 || height <= max.1));
        }

        #[test]
        fn any_planes_are_no_panic(size in (1_usize..40, 1_usize..40), stride in 0_usize..50, bytes in 0_usize..2000) {
            let plane = vec![100; bytes];
            let planes = Planes { size, luma: &plane, chroma: (&plane, &plane), strides: (stride, stride, stride), is_hd: true };
            if let Some(made) = small(&planes, fit(size, (16, 16))) {
                prop_assert_eq!(made.rgb.len(), usize::from(made.width) * usize::from(made.height) * 3);
            }
        }
    }
}
