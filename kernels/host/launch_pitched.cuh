// K and V to rows that lie PITCH floats apart, in scratch; then a block for every BR rows of every batch.
template <class T> void launch(Params p, int bytes) {
    check(allow_shared_memory((const void*)KERNEL1<T>, bytes), "loading the kernel");
    const long long rows = (long long)p.batches * p.Nk;
    p.scratch = room_for(2 * (size_t)rows * PITCH);
    KERNEL0<T><<<(unsigned)ceil_div(rows * T::D, (long long)T::THREADS), T::THREADS>>>(p);
    KERNEL1<T><<<(unsigned)row_blocks(p.batches, p.Nq, T::BR), T::THREADS, bytes>>>(p);
    check(cudaGetLastError(), "launching the kernels");
    check(cudaFree(p.scratch), "computing");
}
