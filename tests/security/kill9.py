#!/usr/bin/env python3
"""Kills a hub with SIGKILL during registry writes and proves that no acknowledged write is lost and none comes back.
usage: kill9.py ROUNDS PORT TOKEN -- CMD...   CMD must start the hub in the foreground on 127.0.0.1:PORT with the same data directory every time.
Uses POST/DELETE/GET /api/mcp/servers. Ledger per name: a number that only grows is written in description; after restart the stored number must be >= last acknowledged and <= last attempted."""
import sys, subprocess, time, random, json, threading, http.client, signal, os
i=sys.argv.index("--"); R,PORT,TOK=int(sys.argv[1]),int(sys.argv[2]),sys.argv[3]; CMD=sys.argv[i+1:]; rnd=random.Random(7)
acked={}; tried={}; gone=set(); trygone=set(); lost=[]; ghosts=[]; bad=[]; restarts=[]
def call(m,p,b=None,t=2):
    c=http.client.HTTPConnection("127.0.0.1",PORT,timeout=t)
    try:
        c.request(m,p,json.dumps(b) if b is not None else None,{"Authorization":"Bearer "+TOK,"Content-Type":"application/json"}); r=c.getresponse(); d=r.read(); return r.status,d
    finally: c.close()
def writer(k,stop):
    n=0
    while not stop.is_set():
        name=f"w{k}-{rnd.randrange(6)}"; v=tried.get(name,0)+1
        try:
            if rnd.random()<0.15 and name in acked:
                trygone.add(name); s,_=call("DELETE","/api/mcp/servers/"+name)
                if s in(200,204): acked.pop(name,None); gone.add(name); trygone.discard(name)
            else:
                tried[name]=v; ex=name in acked; gone.discard(name)
                s,_=call("PUT" if ex else "POST","/api/mcp/servers"+("/"+name if ex else ""),{"name":name,"transportType":"SSE","config":{"url":"http://127.0.0.1:9/sse"},"autoConnect":False,"description":str(v)})
                if s in(200,201): acked[name]=v; gone.discard(name)
                elif s==409: acked.setdefault(name,0)
        except Exception: return
        n+=1
def up(t=15):
    e=time.time()+t
    while time.time()<e:
        try:
            if call("GET","/healthz",t=1)[0]==200: return True
        except Exception: time.sleep(0.02)
    return False
tot=0; t00=time.time()
for rd in range(R+1):
    t0=time.time(); p=subprocess.Popen(CMD,stdout=subprocess.DEVNULL,stderr=subprocess.DEVNULL)
    if not up(): bad.append(("no start",rd)); p.kill(); p.wait(); break
    restarts.append(time.time()-t0)
    s,d=call("GET","/api/mcp/servers",t=5); v=json.loads(d); L=v if isinstance(v,list) else v.get("servers",[])
    have={x["name"]:int(x.get("description") or 0) for x in L}
    for n,a in list(acked.items()):
        if n not in have:
            if n not in trygone: lost.append((rd,n,a))
            acked.pop(n,None)
        elif not a<=have[n]<=tried.get(n,0): bad.append((rd,n,a,have[n],tried.get(n)))
    for n in gone:
        if n in have and n not in acked and have[n]<=tried.get(n,0) and n not in trygone: ghosts.append((rd,n))
    for n,x in have.items(): acked[n]=x; tried[n]=max(tried.get(n,0),x)
    trygone.clear(); gone.clear()
    if rd==R: p.terminate(); p.wait(10); break
    stop=threading.Event(); th=[threading.Thread(target=writer,args=(k,stop),daemon=True) for k in range(4)]; [t.start() for t in th]
    time.sleep(rnd.uniform(0.02,0.35)); os.kill(p.pid,signal.SIGKILL); stop.set(); p.wait(); [t.join(3) for t in th]; tot+=1
print(json.dumps({"kills":tot,"lost_acknowledged":len(lost),"wrong_value":len(bad),"came_back":len(ghosts),"examples":(lost+bad+ghosts)[:5],"start_s_max":round(max(restarts),2) if restarts else None,"seconds":round(time.time()-t00)}))
sys.exit(1 if lost or bad or ghosts else 0)
