// A block for every batch; scratch holds l and m of every row.
template <class T> void launch(Params p, int bytes) {
    check(allow_shared_memory((const void*)KERNEL0<T>, bytes), "loading the kernel");
    p.scratch = room_for(2 * (size_t)p.batches * p.Nq);
    KERNEL0<T><<<p.batches, T::THREADS, bytes>>>(p);
    check(cudaGetLastError(), "launching the kernel");
    check(cudaFree(p.scratch), "computing");
}
