// Selections from typed arrays.

/** The n-th largest of the first `count` values, which change places: Hoare's selection. */
export function nthLargest(values, count, n) {
  let low = 0, high = count - 1;
  const wanted = n - 1;
  while (low < high) {
    const pivot = values[(low + high) >> 1];
    let i = low, j = high;
    while (i <= j) {
      while (values[i] > pivot) i += 1;
      while (values[j] < pivot) j -= 1;
      if (i <= j) {
        const moved = values[i];
        values[i] = values[j];
        values[j] = moved;
        i += 1;
        j -= 1;
      }
    }
    if (wanted <= j) high = j;
    else if (wanted >= i) low = i;
    else break;
  }
  return values[wanted];
}

/** The median of numbers, of which there is one at least. */
export function median(numbers) {
  const sorted = Float64Array.from(numbers).sort(), middle = sorted.length >> 1;
  return sorted.length % 2 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
}
