// A block for every BR rows and every split of the keys: as many splits as keep the GPU busy. If there are some, scratch holds the
// results of each, which a second launch puts together.
template <class T> void launch(Params p, int bytes) {
    const long long blocks = row_blocks(p.batches, p.Nq, T::BR);
    const int sms = attribute(cudaDevAttrMultiProcessorCount);
    p.splits = (int)split_count(blocks, p.Nk, T::BC, T::BLOCKS, sms, LONGEST_SPLIT, SPLIT_COST);
    const long long rows = (long long)p.splits * p.batches * p.Nq;
    if (p.splits > 1) {
        const long long stats = row_stats_bytes(rows, 1);
        char* scratch = (char*)room_for((stats + partial_o_bytes(rows, T::D, p.splits)) / sizeof(float));
        p.scratch = scratch, p.row_stats = (float2*)scratch, p.partial_o = (float*)(scratch + stats);
    }
    check(allow_shared_memory((const void*)KERNEL0<T>, bytes), "loading the kernel");
    KERNEL0<T><<<(unsigned)(blocks * p.splits), T::THREADS, bytes>>>(p);
    if (p.splits > 1) KERNEL1<T><<<(unsigned)combine_blocks(p.batches, p.Nq, T::D, COMBINE_THREADS), COMBINE_THREADS>>>(p);
    check(cudaGetLastError(), "launching the kernels");
    if (p.splits > 1) check(cudaFree(p.scratch), "computing");
}
