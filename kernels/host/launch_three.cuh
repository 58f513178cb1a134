// A tile of scores a block, then a row of scores a warp, then an element of O a thread. Scratch holds S: of as many batches at a
// time as there is memory for.
template <class T> void launch(Params p, int) {
    size_t room, all;
    check(cudaMemGetInfo(&room, &all), "asking for the GPU's memory");
    const size_t scores = (size_t)p.Nq * p.Nk;  // of a batch
    const size_t fitting = room / 10 * 9 / sizeof(float) / scores;
    const int B = p.batches, together = fitting < 1 ? 1 : fitting < (size_t)B ? (int)fitting : B;
    p.scratch = room_for(together * scores);
    for (int first = 0; first < B; first += together) {
        p.batches = together < B - first ? together : B - first;
        const long long rows = (long long)p.batches * p.Nq;
        const unsigned tiles = (unsigned)(row_blocks(p.batches, p.Nq, T::BR) * ceil_div(p.Nk, T::BC));
        KERNEL0<T><<<tiles, T::THREADS>>>(p);
        KERNEL1<T><<<(unsigned)ceil_div(rows, (long long)T::THREADS / 32), T::THREADS>>>(p);
        KERNEL2<T><<<(unsigned)ceil_div(rows * T::D, (long long)T::THREADS), T::THREADS>>>(p);
        check(cudaGetLastError(), "launching the kernels");
        p.q.data += together * p.q.batch, p.k.data += together * p.k.batch, p.v.data += together * p.v.batch;
        p.o.data += together * p.o.batch;
    }
    check(cudaFree(p.scratch), "computing");
}
