// A block for every BR rows of every batch.
template <class T> void launch(const Params& p, int bytes) {
    check(allow_shared_memory((const void*)KERNEL0<T>, bytes), "loading the kernel");
    KERNEL0<T><<<(unsigned)row_blocks(p.batches, p.Nq, T::BR), T::THREADS, bytes>>>(p);
    check(cudaGetLastError(), "launching the kernel");
}
