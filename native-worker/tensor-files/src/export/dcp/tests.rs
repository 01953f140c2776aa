use super::*;

#[test]
fn cuts_are_small_and_have_each_element_once() {
    for shape in [&[][..], &[1], &[7], &[5, 3], &[4, 1, 6], &[2, 3, 4, 5], &[1, 1, 40], &[3, 8, 1]] {
        let all: u64 = shape.iter().product();
        for most in 1..=all + 1 {
            let mut next = 0;
            for (offsets, sizes, range) in cut(shape, most) {
                assert_eq!((range.start, offsets.len(), sizes.len()), (next, shape.len(), shape.len()));
                assert_eq!(range.end - range.start, sizes.iter().product::<u64>(), "{shape:?} by {most}");
                assert!(range.end - range.start <= most, "{shape:?} by {most}");
                // The first element of the box is the first of the range.
                let first =
                    offsets.iter().zip(shape).fold(0, |first, (index, extent)| first * extent + index);
                assert_eq!(first, range.start, "{shape:?} by {most}");
                next = range.end;
            }
            assert_eq!(next, all);
        }
    }
}
